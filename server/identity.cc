#include "server/identity.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"

namespace detshare {
namespace {

constexpr size_t kMaxTenant = 64;

std::string DefaultTenant(uid_t uid) {
  passwd entry;
  passwd* found = nullptr;
  char buffer[4096];
  if (getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) == 0 && found != nullptr)
    return found->pw_name;
  return absl::StrCat("uid-", uid);
}

bool IsTenantName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxTenant &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
         });
}

}  // namespace

absl::Status MayUse(const Peer& peer) {
  if (geteuid() == 0 || peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("detshared runs as user ", geteuid(),
                                                  " and serves no other; as root it serves all"));
}

absl::StatusOr<std::string> TenantName(const std::string& wish, const Peer& peer) {
  const std::string name = wish.empty() ? DefaultTenant(peer.uid) : wish;
  if (!IsTenantName(name)) {
    return absl::InvalidArgumentError(
        "a tenant's name has 1 to 64 letters, digits, or any of -_.@");
  }
  return name;
}

}  // namespace detshare
