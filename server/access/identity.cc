#include "server/access/identity.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/config/config.h"
#include "policy/status_macros.h"

namespace detshare {
namespace {

std::string UserName(uid_t uid) {
  passwd entry;
  passwd* found = nullptr;
  char buffer[4096];
  if (getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) == 0 && found != nullptr)
    return found->pw_name;
  return absl::StrCat("uid-", uid);
}

bool NamesUser(const TenantRules::Rule& rule, const Peer& peer) {
  return std::find(rule.users.begin(), rule.users.end(), peer.uid) != rule.users.end();
}

bool IsMember(const std::vector<gid_t>& of, const Peer& peer) {
  return std::any_of(of.begin(), of.end(), [&](gid_t group) {
    return group == peer.gid ||
           std::find(peer.groups.begin(), peer.groups.end(), group) != peer.groups.end();
  });
}

bool NamesGroup(const TenantRules::Rule& rule, const Peer& peer) {
  return IsMember(rule.groups, peer);
}

std::string DefaultTenant(const TenantRules& rules, const Peer& peer) {
  for (const auto names : {NamesUser, NamesGroup}) {
    for (const TenantRules::Rule& rule : rules.rules) {
      if (names(rule, peer)) return rule.tenant;
    }
  }
  return UserName(peer.uid);
}

absl::Status MayUse(const Peer& peer) {
  if (geteuid() == 0 || peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("detshared runs as user ", geteuid(),
                                                  " and serves no other; as root it serves all"));
}

}  // namespace

void Identity::SetRules(TenantRules rules) {
  auto next = std::make_shared<const TenantRules>(std::move(rules));
  const MutexLock lock(&mutex_);
  rules_ = std::move(next);
}

std::shared_ptr<const TenantRules> Identity::rules() const {
  const MutexLock lock(&mutex_);
  return rules_;
}

absl::StatusOr<std::string> Identity::TenantName(const std::string& wish, const Peer& peer) const {
  DETSHARE_RETURN_IF_ERROR(MayUse(peer));
  if (peer.endpoint != nullptr) {
    if (wish.empty() || wish == peer.endpoint->tenant) return peer.endpoint->tenant;
    return absl::PermissionDeniedError(absl::StrCat(
        "this container is tenant ", peer.endpoint->tenant, "; DETSHARE_TENANT names another"));
  }
  static const TenantRules* const none = new TenantRules;
  const std::shared_ptr<const TenantRules> held = rules();
  const TenantRules& rules = held != nullptr ? *held : *none;
  const std::string name = wish.empty() ? DefaultTenant(rules, peer) : wish;
  if (!IsTenantName(name)) {
    return absl::InvalidArgumentError(
        "a tenant's name has 1 to 64 letters, digits, or any of -_.@");
  }
  if (peer.uid == 0 || peer.uid == geteuid()) return name;
  const auto rule = std::find_if(rules.rules.begin(), rules.rules.end(),
                                 [&](const TenantRules::Rule& one) { return one.tenant == name; });
  if (rule == rules.rules.end()) {
    if (rules.unlisted) return name;
    if (!wish.empty()) {
      return absl::PermissionDeniedError(
          absl::StrCat("there is no tenant ", name, " in the daemon's configuration"));
    }
    return absl::PermissionDeniedError(
        absl::StrCat("user ", UserName(peer.uid),
                     " has no tenant in the daemon's configuration: name one that the user may be "
                     "with --tenant or DETSHARE_TENANT, or ask an operator for one"));
  }
  if (!rule->restricted || NamesUser(*rule, peer) || NamesGroup(*rule, peer)) return name;
  return absl::PermissionDeniedError(
      absl::StrCat("user ", UserName(peer.uid), " may not be tenant ", name,
                   ": the daemon's configuration names other users"));
}

absl::Status Identity::MayAdminister(const Peer& peer) const {
  if (peer.endpoint != nullptr) {
    return absl::PermissionDeniedError(
        absl::StrCat("endpoint ", peer.endpoint->name, " admits no requests of operators"));
  }
  if (peer.uid == 0 || peer.uid == geteuid()) return absl::OkStatus();
  const std::shared_ptr<const TenantRules> held = rules();
  if (held != nullptr && IsMember(held->admins, peer)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("only root, the daemon's user ", UserName(geteuid()),
                   ", and members of the configuration's admin_group may do this"));
}

}  // namespace detshare
