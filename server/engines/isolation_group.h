// Decides which programs share an engine.
//
// The name of an isolation group says what the group consists of, and no two kinds of groups share
// a name, because a tenant's name has no colon:
//
//     chat              the tenant `chat`
//     user:1001         the user with this number
//     group:inference   the tenants whose configuration names the group `inference`
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "server/access/peer_table.h"

namespace detshare {

enum class Isolation { kNone, kUser, kTenant, kGroup };
// Takes a value of the configuration's `isolation`.
Isolation ParseIsolation(absl::string_view text);

// Plain values.
struct IsolationGroups {
  Isolation isolation = Isolation::kNone;
  std::map<std::string, std::string> named;  // the group that a tenant's configuration names

  // Returns the group of a peer that acts as `tenant`. Behind a tenant endpoint the tenant decides,
  // because users say nothing about containers. Not called for kNone.
  std::string Of(const Peer& peer, const std::string& tenant) const;
};

// Returns the name of the group's directory in `engines/`. No two groups have the same one.
std::string DirectoryName(const std::string& group);

}  // namespace detshare
