// Addresses for the sessions of tests. Each sanitizer reserves another large part of the address
// space.
#pragma once

#include <cstdint>

namespace detshare::soft {

inline constexpr uint64_t kTestSpaceBytes = 1ull << 30;

// Returns the base of the range of session `index`. The range has kTestSpaceBytes bytes.
inline constexpr uint64_t TestBase(uint64_t index) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr uint64_t kFirst = 0x2000'0000'0000;
#elif defined(__SANITIZE_THREAD__)
  constexpr uint64_t kFirst = 0x10'0000'0000;
#else
  constexpr uint64_t kFirst = 0x0600'0000'0000;
#endif
  return kFirst + index * kTestSpaceBytes;
}

}  // namespace detshare::soft
