#include "server/reloader.h"

#include <utility>

#include "policy/placement.h"
#include "policy/status_macros.h"
#include "proto/admin.pb.h"
#include "server/daemon_options.h"
#include "server/services/settings_store.h"
#include "server/sessions/session_manager.h"

namespace detshare {
namespace {

proto::Settings ToSettings(const Config& config) {
  proto::Settings settings;
  settings.mutable_policy()->set_name(config.policy);
  for (const auto& [name, value] : config.policy_parameters)
    (*settings.mutable_policy()->mutable_parameters())[name] = value;
  for (const TenantConfig& tenant : config.tenants)
    *settings.add_tenants() = ToSetting(tenant.tenant, tenant.quota);
  return settings;
}

}  // namespace

Reloader::Reloader(Config started, std::function<absl::StatusOr<Config>()> read, Daemon& daemon,
                   std::string inherited_settings)
    : started_(std::move(started)),
      read_(std::move(read)),
      daemon_(daemon),
      inherited_settings_(std::move(inherited_settings)),
      applied_(started_) {}

absl::StatusOr<std::vector<std::string>> Reloader::ApplySettings(const Config& wanted) const {
  const TenantQuota default_quota = DefaultQuota(wanted);
  if (inherited_settings_.empty())
    return daemon_.settings().Replace(ToSettings(wanted), default_quota);
  DETSHARE_ASSIGN_OR_RETURN(proto::Settings theirs, ReadSettings(inherited_settings_));
  daemon_.manager().tenant_accounts().SetDefault(default_quota);
  return daemon_.settings().Adopt(std::move(theirs));
}

absl::StatusOr<Reloader::Report> Reloader::Apply() {
  DETSHARE_ASSIGN_OR_RETURN(Config wanted, read_());
  // The steps that can fail come first.
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<policy::DevicePlacement> placement,
                            policy::CreatePlacement(wanted.placement));
  DETSHARE_ASSIGN_OR_RETURN(std::vector<std::string> settings, ApplySettings(wanted));

  Report report = ReportOf(started_, applied_, wanted, std::move(settings));
  ApplyLogLevel(wanted);
  // Applied even without a change, because a user or group name may mean another id by now.
  daemon_.identity().SetRules(ResolveTenantRules(wanted));
  SessionLimits limits = daemon_.manager().options().limits;
  ApplyLimits(wanted, &limits);
  daemon_.manager().SetLimits(limits, static_cast<uint32_t>(wanted.max_sessions));
  // The same placement goes on with what it has placed.
  if (wanted.placement != applied_.placement) daemon_.manager().SetPlacement(std::move(placement));
  applied_ = std::move(wanted);
  return report;
}

absl::StatusOr<Reloader::Report> Reloader::Reload(const std::string& who) {
  const MutexLock lock(&mutex_);
  absl::StatusOr<Report> report = Apply();
  DaemonEvent event = LogReload(report, who);
  // The supervisor, which tells an engine to reload, has an event of its own.
  if (inherited_settings_.empty() || !report.ok()) daemon_.manager().events().Add(std::move(event));
  return report;
}

}  // namespace detshare
