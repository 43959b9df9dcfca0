// SPDX-License-Identifier: Apache-2.0
// A runtime directory of the test program alone, for a group of tests.
#ifndef VB_TESTS_RUNTIME_DIR_H
#define VB_TESTS_RUNTIME_DIR_H

// Before and after the group. NICs learn of it by the environment; the state stays as it is,
// since a group's state would stand for the tests' own.
int runtime_dir_make(void **state);
int runtime_dir_remove(void **state);

// How many of its files have names that begin so.
unsigned runtime_dir_count(const char *prefix);

// Removes any directory with the files in it. Returns 0 if that is done.
int runtime_dir_erase(const char *dir);

#endif
