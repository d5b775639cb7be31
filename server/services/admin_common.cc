#include "server/services/admin_common.h"

#include <unistd.h>

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/registry.h"
#include "server/base/event_message.h"

namespace detshare {

std::string Who(const Peer& peer) { return absl::StrCat("uid ", peer.uid, ", pid ", peer.pid); }

std::string TextOf(const proto::PolicySetting& policy) {
  std::string text = policy.name();
  for (const auto& [name, value] : policy.parameters())
    absl::StrAppend(&text, " ", name, "=", value);
  return text;
}

absl::Status MaySetPolicy(const proto::PolicySetting& policy, const Peer& peer) {
  const bool is_code = policy::IsSharedObject(policy.name());
  if (is_code && peer.uid != 0 && peer.uid != geteuid())
    return absl::PermissionDeniedError("only root may load a policy from a shared object");
  return absl::OkStatus();
}

absl::Status CheckEndRequest(const proto::EndSessionsRequest& request) {
  if ((request.sessions_size() == 0) == request.tenant().empty())
    return absl::InvalidArgumentError("sessions, or a tenant, but not both");
  return absl::OkStatus();
}

void AddTenant(const proto::Settings& settings, const std::string& name, proto::Tenants* tenants) {
  for (const proto::TenantSetting& tenant : settings.tenants()) {
    if (tenant.name() == name) *tenants->add_tenants() = tenant;
  }
}

DaemonEvent EventBy(const Peer& peer, DaemonEvent::Kind kind, std::string tenant,
                    std::string text) {
  DaemonEvent event;
  event.kind = kind;
  event.uid = peer.uid;
  event.pid = peer.pid;
  event.tenant = std::move(tenant);
  event.text = std::move(text);
  return event;
}

void AddEvents(const EventLog& log, const proto::GetEventsRequest& request,
               const std::function<bool(const DaemonEvent&)>& visible, proto::Events* events) {
  const size_t max = request.max() == 0 ? EventLog::kMax : request.max();
  const bool following = request.log() == log.id() && request.first() != 0;
  const EventLog::Page page = following ? log.From(request.first(), max) : log.Latest(max);
  events->set_log(log.id());
  events->set_next(page.next);
  events->set_lost(page.lost);
  for (const DaemonEvent& event : page.events) {
    if (visible(event)) *events->add_events() = ToMessage(event);
  }
}

void AddOwners(const Owners& owners, proto::Status* status) {
  for (proto::SessionStatus& session : *status->mutable_sessions()) {
    if (!session.endpoint().empty())
      *session.mutable_owner() = owners.OfEndpoint(session.endpoint());
  }
  for (proto::TenantUse& tenant : *status->mutable_tenants())
    *tenant.mutable_owner() = owners.OfTenant(tenant.name());
}

void DescribePolicies(const proto::PolicySetting& current, proto::Policies* policies) {
  *policies->mutable_current() = current;
  for (const std::string& name : policy::PolicyNames()) {
    proto::PolicyInfo* const policy = policies->add_policies();
    policy->set_name(name);
    policy->set_purpose(policy::PurposeOf(name));
    const auto parameters = policy::ParametersOf(name);
    if (!parameters.ok()) continue;
    for (const policy::Parameter& parameter : *parameters) {
      proto::ParameterInfo* const one = policy->add_parameters();
      one->set_name(std::string(parameter.name));
      one->set_default_value(std::string(parameter.default_value));
      one->set_min(std::string(parameter.min));
      one->set_max(std::string(parameter.max));
      one->set_help(std::string(parameter.help));
    }
  }
  if (!policy::IsSharedObject(current.name())) return;
  // The object knows what its parameters mean. Here only those are known that were set.
  proto::PolicyInfo* const loaded = policies->add_policies();
  loaded->set_name(current.name());
  const std::map<std::string, std::string> set(current.parameters().begin(),
                                               current.parameters().end());
  for (const auto& [name, value] : set) loaded->add_parameters()->set_name(name);
}

}  // namespace detshare
