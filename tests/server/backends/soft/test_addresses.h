// Addresses for the sessions of tests. The sanitizers keep most of the address space for
// themselves, each another part.
#pragma once

#include <cstdint>

namespace detshare::soft {

inline constexpr uint64_t kTestSpaceBytes = 1ull << 30;

// The base of the `index`-th session's range, kTestSpaceBytes long.
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
