// Reads the configuration again while the daemon runs, and puts in force what can change then.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/config/config.h"
#include "server/daemon.h"

namespace detshare {

// Any thread.
class Reloader {
 public:
  // `started` is what the daemon was started with; `read` gives what is wanted now, or what is wrong
  // with it. The daemon outlives this.
  Reloader(Config started, std::function<absl::StatusOr<Config>()> read, Daemon& daemon);

  struct Report {
    std::vector<std::string> changed;  // "[daemon] log_level: \"info\" -> \"debug\""
    std::vector<std::string> restart;  // what stays as it is until the daemon is started again
  };
  // All that can change, or with an error nothing: then everything is as it was. What was set while
  // the daemon ran, and not by the configuration, is in force no more. `who` asked, for log and
  // events.
  absl::StatusOr<Report> Reload(const std::string& who);

 private:
  absl::StatusOr<Report> Apply();

  const Config started_;
  const std::function<absl::StatusOr<Config>()> read_;
  Daemon& daemon_;
  std::mutex mutex_;  // one at a time
  Config applied_;    // guarded by mutex_
};

}  // namespace detshare
