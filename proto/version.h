// The version of the build, for people: the daemon, the shim and the tools are released together. What must agree between shim and
// daemon is kAbiVersion (ring_abi.h).
#pragma once

#define DETSHARE_VERSION "0.1.0"

namespace detshare {

inline constexpr char kVersion[] = DETSHARE_VERSION;

}  // namespace detshare
