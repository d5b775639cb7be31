// The most objects of each kind that a session may have, whatever its configuration says. They
// limit the memory that a client can make the daemon hold. policy/config accepts no greater limit,
// so that a program never meets a cap which its operator does not know.
#pragma once

#include <cstdint>

namespace detshare {

inline constexpr uint32_t kMaxContexts = 1024;
inline constexpr uint32_t kMaxStreams = 65536;
inline constexpr uint32_t kMaxEvents = 1 << 20;
inline constexpr uint32_t kMaxLibraries = 1 << 20;
inline constexpr uint32_t kMaxKernels = 1 << 20;

}  // namespace detshare
