// How the daemon warns about a call that has succeeded.
#pragma once

namespace detshare {

// The key of the warning in the call's trailing metadata. The value is one line for people.
inline constexpr char kWarningMetadata[] = "detshare-warning";

}  // namespace detshare
