// Reads the configuration again while the daemon runs, and puts in force what can change at run
// time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/config/config.h"
#include "proto/mutex.h"
#include "server/daemon.h"
#include "server/reload_report.h"

namespace detshare {

// Any thread may call it.
class Reloader {
 public:
  // `started` is the configuration with which the daemon was started. `read` returns the wanted
  // configuration, or what is wrong with it. `inherited_settings` is as in Daemon::Options: they
  // take the place of the configuration's. The daemon outlives this object.
  Reloader(Config started, std::function<absl::StatusOr<Config>()> read, Daemon& daemon,
           std::string inherited_settings = "");

  using Report = ReloadReport;
  // Puts in force all that can change at run time or, with an error, nothing. Replaces settings
  // that were made at run time and not by the configuration. `who` names the requester in the log
  // and in events. With inherited settings only an error is an event.
  absl::StatusOr<Report> Reload(const std::string& who);

 private:
  absl::StatusOr<Report> Apply() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the settings and the default limits in force. Returns the changes of settings.
  absl::StatusOr<std::vector<std::string>> ApplySettings(const Config& wanted) const;

  const Config started_;
  const std::function<absl::StatusOr<Config>()> read_;
  Daemon& daemon_;
  const std::string inherited_settings_;
  Mutex mutex_;  // one reload at a time
  Config applied_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare
