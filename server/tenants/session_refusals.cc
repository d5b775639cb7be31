#include "server/tenants/session_refusals.h"

#include "absl/strings/str_cat.h"

namespace detshare {

absl::Status TenantIsFull(const std::string& tenant, uint64_t used, uint64_t limit) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "tenant ", tenant, " is at its limit of sessions (", used, " of ", limit,
      " in use): end one of its programs, or let an operator allow more: detsharectl tenant set ",
      tenant, " --sessions N"));
}

absl::Status DaemonIsFull(uint64_t used, uint64_t limit) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the daemon is at its limit of sessions (", used, " of ", limit,
      " in use): end a program, or let an operator raise max_sessions of [daemon] in its "
      "configuration"));
}

}  // namespace detshare
