// The version of the build, for people. The daemon, the shim and the tools are released together.
// The shim and the daemon need the same kAbiVersion (ring_abi.h), not the same version.
#pragma once

#define DETSHARE_VERSION "0.2.0"

namespace detshare {

inline constexpr char kVersion[] = DETSHARE_VERSION;

}  // namespace detshare
