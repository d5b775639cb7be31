// Feeds the service manager's watchdog as long as the daemon serves.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "proto/mutex.h"

namespace detshare {

// Makes a call through the daemon's socket, as any client may. A reply shows that the daemon
// accepts connections, that gRPC serves, and that the service of clients is not deadlocked. The
// call does not test the driver: a kernel that runs for minutes may hold the driver's lock for that
// long, and ending the daemon would end everybody's work. Returns DeadlineExceeded without a reply,
// and Unavailable without a connection.
absl::Status AskDaemon(const std::string& socket, std::chrono::milliseconds timeout);

// Calls `feed` every `period` as long as `check` succeeds, on a thread of its own. Logs a check
// that fails, and repeats it after the next period.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds period, std::function<absl::Status()> check,
           std::function<void()> feed);
  ~Watchdog();  // waits for a check in progress
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Run();

  const std::chrono::milliseconds period_;
  const std::function<absl::Status()> check_;
  const std::function<void()> feed_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace detshare
