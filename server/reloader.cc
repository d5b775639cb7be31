#include "server/reloader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "policy/placement.h"
#include "policy/status_macros.h"
#include "proto/admin.pb.h"
#include "server/base/logging.h"
#include "server/daemon_options.h"
#include "server/services/settings_store.h"
#include "server/sessions/session_manager.h"

namespace detshare {
namespace {

std::string Shown(const ConfigSetting& setting, const Config& config) {
  if (!setting.computed.empty() && IsDefault(setting, config))
    return absl::StrCat("(", setting.computed, ")");
  return ValueText(setting, config);
}

// Returns a line for each setting that differs: of those that a reload changes (`live`), or of the
// others.
std::vector<std::string> Differences(const Config& before, const Config& after, bool live) {
  std::vector<std::string> lines;
  for (const ConfigSetting& setting : AllConfigSettings()) {
    // SettingsStore::Replace() reports the policy.
    if (setting.live != live || &setting == FindConfigSetting("policy", "name")) continue;
    if (ValueText(setting, before) == ValueText(setting, after)) continue;
    lines.push_back(absl::StrCat("[", setting.section, "] ", setting.key, ": ",
                                 Shown(setting, before), " -> ", Shown(setting, after)));
  }
  return lines;
}

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

Reloader::Reloader(Config started, std::function<absl::StatusOr<Config>()> read, Daemon& daemon)
    : started_(std::move(started)), read_(std::move(read)), daemon_(daemon), applied_(started_) {}

absl::StatusOr<Reloader::Report> Reloader::Apply() {
  DETSHARE_ASSIGN_OR_RETURN(Config wanted, read_());
  // The steps that can fail come first.
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<policy::DevicePlacement> placement,
                            policy::CreatePlacement(wanted.placement));
  DETSHARE_ASSIGN_OR_RETURN(std::vector<std::string> settings,
                            daemon_.settings().Replace(ToSettings(wanted)));

  Report report;
  report.changed = std::move(settings);
  for (std::string& line : Differences(applied_, wanted, /*live=*/true))
    report.changed.push_back(std::move(line));
  if (Compare(applied_, wanted).access) report.changed.push_back("who may be which tenant");
  report.restart = Differences(started_, wanted, /*live=*/false);

  ApplyLogLevel(wanted);
  // Applied even without a change, because a user or group name may mean another id by now.
  daemon_.identity().SetRules(ResolveTenantRules(wanted));
  SessionLimits limits = daemon_.manager().options().limits;
  ApplyLimits(wanted, &limits);
  daemon_.manager().SetLimits(limits, static_cast<uint32_t>(wanted.max_sessions));
  daemon_.manager().tenant_accounts().SetDefault(DefaultQuota(wanted));
  // The same placement goes on with what it has placed.
  if (wanted.placement != applied_.placement) daemon_.manager().SetPlacement(std::move(placement));
  applied_ = std::move(wanted);
  return report;
}

absl::StatusOr<Reloader::Report> Reloader::Reload(const std::string& who) {
  const std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<Report> report = Apply();
  DaemonEvent event;
  event.kind = DaemonEvent::Kind::kConfiguration;
  if (!report.ok()) {
    LogErrorLines(report.status().message());
    LogError("the configuration is not used: everything stays as it was (", who, ")");
    event.text = absl::StrCat("not used (", who, "): ", std::string(report.status().message()));
  } else {
    for (const std::string& line : report->changed) LogInfo("changed by the configuration: ", line);
    for (const std::string& line : report->restart)
      LogWarning("changes only when detshared is started again: ", line);
    if (report->changed.empty() && report->restart.empty())
      LogInfo("the configuration has not changed (", who, ")");
    event.text = absl::StrCat("read (", who, "): ",
                              report->changed.empty() ? std::string("nothing changed")
                                                      : absl::StrJoin(report->changed, "; "));
  }
  daemon_.manager().events().Add(std::move(event));
  return report;
}

}  // namespace detshare
