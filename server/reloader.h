// Reads the configuration again while the daemon runs, and puts in force what can change at run
// time.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/config/config.h"
#include "server/daemon.h"

namespace detshare {

// Any thread may call it.
class Reloader {
 public:
  // `started` is the configuration with which the daemon was started. `read` returns the wanted
  // configuration, or what is wrong with it. The daemon outlives this object.
  Reloader(Config started, std::function<absl::StatusOr<Config>()> read, Daemon& daemon);

  struct Report {
    std::vector<std::string> changed;  // "[daemon] log_level: \"info\" -> \"debug\""
    std::vector<std::string> restart;  // what changes only when the daemon is started again
  };
  // Puts in force all that can change at run time or, with an error, nothing. Replaces settings
  // that were made at run time and not by the configuration. `who` names the requester in the log
  // and in events.
  absl::StatusOr<Report> Reload(const std::string& who);

 private:
  absl::StatusOr<Report> Apply();

  const Config started_;
  const std::function<absl::StatusOr<Config>()> read_;
  Daemon& daemon_;
  std::mutex mutex_;  // one reload at a time
  Config applied_;    // guarded by mutex_
};

}  // namespace detshare
