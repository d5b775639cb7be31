// `detsharectl sessions`, `tenants` and `partitions`: who is there, what they use and where they
// run.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"

namespace detshare::ctl {

std::string SessionsText(const proto::Status& status);
std::string SessionsJson(const proto::Status& status);

// A line for each tenant that has a session or about whom something was said.
std::string TenantUseText(const proto::Status& status, const proto::Tenants& tenants);
std::string TenantUseJson(const proto::Status& status, const proto::Tenants& tenants);

std::string PartitionsText(const proto::Status& status);
std::string PartitionsJson(const proto::Status& status);

// What `sessions kill` is told: numbers of sessions, or a tenant's name; `tenant` is one whatever
// it looks like. InvalidArgument.
absl::StatusOr<proto::EndSessionsRequest> ToEndRequest(const std::vector<std::string>& who,
                                                       const std::string& tenant);
std::string EndedText(const proto::EndedSessions& ended);
std::string EndedJson(const proto::EndedSessions& ended);

}  // namespace detshare::ctl
