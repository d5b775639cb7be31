// What a reload of the configuration has changed, for operators, the log and events.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/config/config.h"
#include "server/base/event_log.h"

namespace detshare {

namespace proto {
class Reloaded;
}  // namespace proto

struct ReloadReport {
  std::vector<std::string> changed;  // "[daemon] log_level: \"info\" -> \"debug\""
  std::vector<std::string> restart;  // what changes only when the daemon is started again
};

// `settings` are the changes that SettingsStore::Replace() reports. `started` is the configuration
// with which the process was started, `applied` the one before the reload.
ReloadReport ReportOf(const Config& started, const Config& applied, const Config& wanted,
                      std::vector<std::string> settings);
proto::Reloaded ToMessage(const ReloadReport& report);
// Logs the report, or why the configuration is not used, and returns the event about it. `who` names
// the requester.
DaemonEvent LogReload(const absl::StatusOr<ReloadReport>& report, const std::string& who);

}  // namespace detshare
