#pragma once

// GCC 12 gave condition_variable::wait a new version, GLIBCXX_3.4.30, for a `noexcept`. Bound to the version that it had before, the
// prebuilt addon also loads beside the libstdc++ of GCC 11 (Ubuntu 22.04, RHEL 9). For files that wait.
#include <condition_variable>

#if defined(__GLIBCXX__) && (defined(__x86_64__) || defined(__aarch64__)) && defined(__linux__)
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
#endif
