// Assertions of fuzz targets: made in every build, and without a test framework, which would cost
// more than the code that is tested.
#pragma once

#include <cstdio>
#include <cstdlib>

// Ends the program with the condition and its place when it does not hold.
#define FUZZ_CHECK(condition)                                                              \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "%s:%d: this must hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)
