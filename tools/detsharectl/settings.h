// `detsharectl policy` and `detsharectl tenant`: what operators set in a running daemon.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"

namespace detshare::ctl {

// The policies, the one that decides marked.
std::string PoliciesText(const proto::Policies& policies);
// One of them with its parameters; `name` empty: the one that decides. NotFound.
absl::StatusOr<std::string> PolicyText(const proto::Policies& policies, const std::string& name);
std::string PoliciesJson(const proto::Policies& policies);
absl::StatusOr<std::string> PolicyJson(const proto::Policies& policies, const std::string& name);
std::string PolicySettingJson(const proto::PolicySetting& policy);

// What a reload of the configuration changed.
std::string ReloadedText(const proto::Reloaded& reloaded);
std::string ReloadedJson(const proto::Reloaded& reloaded);

std::string TenantsText(const proto::Tenants& tenants);
std::string TenantsJson(const proto::Tenants& tenants);

// "name=value" each. InvalidArgument.
absl::Status AddParameters(const std::vector<std::string>& texts, proto::PolicySetting* setting);

// What a command line says about a tenant; empty strings say nothing.
struct TenantFlags {
  std::string name, tenant_class, weight, share, sms, slo_latency, slo_ttft, slo_tpot;
  std::string memory, pinned_memory, sessions, devices;
};
// InvalidArgument with what is allowed.
absl::StatusOr<proto::TenantSetting> ToSetting(const TenantFlags& flags);

}  // namespace detshare::ctl
