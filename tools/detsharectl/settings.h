// `detsharectl policy` and `detsharectl tenant`: shows and changes the settings of a running
// daemon.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"

namespace detshare::ctl {

// Here `width` is that of text::Table::ToString().

// All policies; a mark shows the policy in force.
std::string PoliciesText(const proto::Policies& policies, size_t width = 0);
// The policy of this name with its parameters. An empty name stands for the policy in force.
// NotFound, with the known names, for an unknown name.
absl::StatusOr<std::string> PolicyText(const proto::Policies& policies, const std::string& name,
                                       size_t width = 0);
std::string PoliciesJson(const proto::Policies& policies);
absl::StatusOr<std::string> PolicyJson(const proto::Policies& policies, const std::string& name);
std::string PolicySettingJson(const proto::PolicySetting& policy);

// The changes that a reload of the configuration made, and those that need a restart.
std::string ReloadedText(const proto::Reloaded& reloaded);
std::string ReloadedJson(const proto::Reloaded& reloaded);

std::string TenantsText(const proto::Tenants& tenants, size_t width = 0);
std::string TenantsJson(const proto::Tenants& tenants);
// The settings of one tenant after they were taken back: none, or those that it has elsewhere.
std::string UnsetText(const std::string& name, const proto::Tenants& in_force);
// A line about a tenant that is not among those with settings, because its name may be mistyped; ""
// for the others.
std::string NoteOfNewTenant(const proto::Tenants& known, const std::string& name);

// Adds parameters, which are texts "name=value". InvalidArgument for another text.
absl::Status AddParameters(const std::vector<std::string>& texts, proto::PolicySetting* setting);

// A tenant's settings as the command line has them. An empty string: not set.
struct TenantFlags {
  std::string name, tenant_class, weight, share, exclusive, sms, slo_latency, slo_ttft, slo_tpot;
  std::string memory, pinned_memory, sessions, devices;
};
// InvalidArgument, with the flag and the allowed values, for a text that does not parse.
absl::StatusOr<proto::TenantSetting> ToSetting(const TenantFlags& flags);

}  // namespace detshare::ctl
