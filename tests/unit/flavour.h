// SPDX-License-Identifier: Apache-2.0
// Which sanitizer this program was built with, whichever compiler built it.
#ifndef VB_TESTS_FLAVOUR_H
#define VB_TESTS_FLAVOUR_H

#ifdef __has_feature
#define FLAVOUR_HAS(feature) __has_feature(feature)
#else
#define FLAVOUR_HAS(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || FLAVOUR_HAS(address_sanitizer)
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || FLAVOUR_HAS(thread_sanitizer)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif

#endif
