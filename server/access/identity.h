// Who asks, and in which tenant's name.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/acceptor.h"

namespace detshare {

// PermissionDenied when the daemon does not serve this peer's user: only as root does it serve
// others than its own.
absl::Status MayUse(const Peer& peer);

// Who may be which tenant.
struct TenantRules {
  struct Rule {
    std::string tenant;
    bool restricted = false;  // to these
    std::vector<uid_t> users;
    std::vector<gid_t> groups;
  };
  std::vector<Rule> rules;  // in the order of the configuration
  std::vector<gid_t> admins;  // groups whose members may change what is in force for all
  bool unlisted = true;     // whether there are other tenants than these
};

// The rules, which may change at any time: they decide about whoever asks next. Any thread.
class Identity {
 public:
  void SetRules(TenantRules rules);

  // The tenant that a client wishes to be. Empty: the first that names its user, else the first
  // that names one of its groups, else the name of its user. InvalidArgument when that is no name:
  // 1 to 64 letters, digits and signs that can stand in a table, a log and a path. PermissionDenied
  // when it may not be that tenant; the daemon's own user and root may be any. Whoever came through
  // an endpoint is the endpoint's.
  absl::StatusOr<std::string> TenantName(const std::string& wish, const Peer& peer) const;

  // PermissionDenied unless the peer may change what is in force for all: root, the daemon's user,
  // and members of the groups of admins, but nobody through an endpoint.
  absl::Status MayAdminister(const Peer& peer) const;

 private:
  std::shared_ptr<const TenantRules> rules() const;

  mutable std::mutex mutex_;
  std::shared_ptr<const TenantRules> rules_;  // guarded by mutex_; null: anybody may be anything
};

}  // namespace detshare
