#include "server/reload_report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/admin.pb.h"
#include "server/base/logging.h"

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

}  // namespace

ReloadReport ReportOf(const Config& started, const Config& applied, const Config& wanted,
                      std::vector<std::string> settings) {
  ReloadReport report;
  report.changed = std::move(settings);
  for (std::string& line : Differences(applied, wanted, /*live=*/true))
    report.changed.push_back(std::move(line));
  if (Compare(applied, wanted).access) report.changed.push_back("who may be which tenant");
  report.restart = Differences(started, wanted, /*live=*/false);
  return report;
}

proto::Reloaded ToMessage(const ReloadReport& report) {
  proto::Reloaded reloaded;
  reloaded.mutable_changed()->Add(report.changed.begin(), report.changed.end());
  reloaded.mutable_restart()->Add(report.restart.begin(), report.restart.end());
  return reloaded;
}

DaemonEvent LogReload(const absl::StatusOr<ReloadReport>& report, const std::string& who) {
  DaemonEvent event;
  event.kind = DaemonEvent::Kind::kConfiguration;
  if (!report.ok()) {
    LogErrorLines(report.status().message());
    LogError("the configuration is not used: everything stays as it was (", who, ")");
    event.text = absl::StrCat("not used (", who, "): ", std::string(report.status().message()));
    return event;
  }
  for (const std::string& line : report->changed) LogInfo("changed by the configuration: ", line);
  for (const std::string& line : report->restart)
    LogWarning("changes only when detshared is started again: ", line);
  if (report->changed.empty() && report->restart.empty())
    LogInfo("the configuration has not changed (", who, ")");
  std::vector<std::string> parts = report->changed;
  if (parts.empty()) parts.push_back("nothing changed");
  if (!report->restart.empty())
    parts.push_back(absl::StrCat("needs a restart: ", absl::StrJoin(report->restart, "; ")));
  event.text = absl::StrCat("read (", who, "): ", absl::StrJoin(parts, "; "));
  return event;
}

}  // namespace detshare
