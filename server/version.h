// The version of the daemon's build, for people. What must agree between shim and daemon is
// kAbiVersion.
#pragma once

namespace detshare {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace detshare
