// `detsharectl sessions`, `tenants` and `partitions`: shows sessions, what tenants use, and where
// sessions run; ends sessions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"

namespace detshare::ctl {

// Here `width` is that of text::Table::ToString().

// The line that takes the place of a table without sessions. An engine that does not reply may have some.
std::string NoSessionsText(const proto::Status& status);
std::string SessionsText(const proto::Status& status, size_t width = 0);
std::string SessionsJson(const proto::Status& status);

// A line for each tenant that has a session or a setting.
std::string TenantUseText(const proto::Status& status, const proto::Tenants& tenants,
                          size_t width = 0);
std::string TenantUseJson(const proto::Status& status, const proto::Tenants& tenants);

// Without `all`, only the partitions that have sessions.
std::string PartitionsText(const proto::Status& status, bool all, size_t width = 0);
std::string PartitionsJson(const proto::Status& status);

// The request of `sessions kill`. `who` is session numbers, or the name of one tenant. `tenant`
// names a tenant even if it looks like a number. InvalidArgument if they name nothing, or both.
absl::StatusOr<proto::EndSessionsRequest> ToEndRequest(const std::vector<std::string>& who,
                                                       const std::string& tenant);
std::string EndedText(const proto::EndedSessions& ended);
std::string EndedJson(const proto::EndedSessions& ended);

}  // namespace detshare::ctl
