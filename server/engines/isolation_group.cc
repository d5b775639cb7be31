#include "server/engines/isolation_group.h"

#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/content_hash.h"

namespace detshare {
namespace {

// A socket's path is short, and the runtime directory and the socket's name need room, too.
constexpr size_t kMaxDirectoryName = 40;

}  // namespace

Isolation ParseIsolation(absl::string_view text) {
  if (text == "user") return Isolation::kUser;
  if (text == "tenant") return Isolation::kTenant;
  if (text == "group") return Isolation::kGroup;
  return Isolation::kNone;
}

std::string IsolationGroups::Of(const Peer& peer, const std::string& tenant) const {
  if (isolation == Isolation::kUser && peer.endpoint == nullptr)
    return absl::StrCat("user:", peer.uid);
  if (isolation == Isolation::kGroup) {
    const auto group = named.find(tenant);
    if (group != named.end()) return absl::StrCat("group:", group->second);
  }
  return tenant;
}

std::string DirectoryName(const std::string& group) {
  // "." and ".." are names of tenants.
  if (group.size() <= kMaxDirectoryName && absl::ascii_isalnum(group.front())) return group;
  // No group's name begins with a percent sign.
  return absl::StrCat("%", ToHex(HashOf(std::as_bytes(std::span(group)))).substr(0, 32));
}

}  // namespace detshare
