// Checks of operators' requests and parts of the replies (proto/admin.proto) that the supervisor and
// engines have in common.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/admin.pb.h"
#include "server/access/owners.h"
#include "server/access/peer_table.h"
#include "server/base/event_log.h"

namespace detshare {

// The longest text of a client, in characters, that replies and events repeat.
inline constexpr size_t kMaxOfAName = 64;

// "uid 1001, pid 77": who made a request, for the log and for events.
std::string Who(const Peer& peer);
// The policy and its parameters, in one line.
std::string TextOf(const proto::PolicySetting& policy);

// Whether the peer, who may administer the daemon, may set this policy: administering the daemon does
// not include loading code into it.
absl::Status MaySetPolicy(const proto::PolicySetting& policy, const Peer& peer);
// InvalidArgument unless the request names sessions or a tenant, and not both.
absl::Status CheckEndRequest(const proto::EndSessionsRequest& request);
// Adds the tenant's settings to `tenants`, if it has some.
void AddTenant(const proto::Settings& settings, const std::string& name, proto::Tenants* tenants);

// Returns an event that says what `peer` did.
DaemonEvent EventBy(const Peer& peer, DaemonEvent::Kind kind, std::string tenant, std::string text);

// Adds the events that `request` asks for, of those for which `visible` returns true.
void AddEvents(const EventLog& log, const proto::GetEventsRequest& request,
               const std::function<bool(const DaemonEvent&)>& visible, proto::Events* events);
// Adds whose sessions and tenants they are.
void AddOwners(const Owners& owners, proto::Status* status);
// Describes all policies.
void DescribePolicies(const proto::PolicySetting& current, proto::Policies* policies);

}  // namespace detshare
