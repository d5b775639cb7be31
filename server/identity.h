// Who asks, and in which tenant's name.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/acceptor.h"

namespace detshare {

// PermissionDenied when the daemon does not serve this peer's user: only as root does it serve
// others than its own.
absl::Status MayUse(const Peer& peer);

// The tenant that a client wishes to be; empty: the name of its user. InvalidArgument when that is
// no name: 1 to 64 letters, digits and signs that can stand in a table, a log and a path.
absl::StatusOr<std::string> TenantName(const std::string& wish, const Peer& peer);

}  // namespace detshare
