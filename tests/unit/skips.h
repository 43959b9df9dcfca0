// SPDX-License-Identifier: Apache-2.0
// Tests that cannot run here. Each says so in one line, `SKIPPED: test: case: reason`; with CI=true
// it fails instead, unless tests/skips.txt lists it.
#ifndef VB_TESTS_SKIPS_H
#define VB_TESTS_SKIPS_H

// Skips the running case, which SKIP() names after the function that calls it. Does not return.
#define SKIP(reason) skips_case(__func__, reason)
void skips_case(const char *name, const char *reason);

// The same for what main() leaves out. Returns how many failures that is.
int skips_group(const char *name, const char *reason);

#endif
