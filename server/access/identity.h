// Decides which tenant a peer acts as and whether it may administer the daemon.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/mutex.h"
#include "server/access/peer_table.h"

namespace detshare {

// Which users and groups may act as which tenant.
struct TenantRules {
  struct Rule {
    std::string tenant;
    bool restricted = false;  // only `users` and `groups` may be this tenant
    std::vector<uid_t> users;
    std::vector<gid_t> groups;
  };
  std::vector<Rule> rules;    // in the order of the configuration
  std::vector<gid_t> admins;  // groups whose members may administer the daemon
  bool unlisted = true;       // whether clients may also name tenants without a rule
};

// Applies the rules. SetRules() may replace them at any time; later calls use the new rules. Any
// thread may call it.
class Identity {
 public:
  void SetRules(TenantRules rules);

  // Returns the tenant of a client that asks for `wish`. For an empty wish that is the first tenant
  // that names the peer's user, else the first that names one of its groups, else the name of its
  // user. A peer that came through a tenant endpoint always gets the endpoint's tenant.
  //
  // Returns InvalidArgument if the name is not a tenant name: 1 to 64 letters, digits and signs
  // that can stand in a table, a log and a path. Returns PermissionDenied if the peer may not be
  // that tenant, or the daemon does not serve its user: only a daemon that runs as root serves
  // users other than its own. Root and the daemon's user may be any tenant. May look up users, so
  // it may wait for a directory service.
  absl::StatusOr<std::string> TenantName(const std::string& wish, const Peer& peer) const;

  // Returns PermissionDenied unless the peer may change what is in force for all sessions. Root,
  // the daemon's user, and members of the admin groups may; a peer that came through a tenant
  // endpoint may not.
  absl::Status MayAdminister(const Peer& peer) const;

 private:
  std::shared_ptr<const TenantRules> rules() const;

  mutable Mutex mutex_;
  // Null: there are no restrictions.
  std::shared_ptr<const TenantRules> rules_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare
