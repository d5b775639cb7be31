// Feeds the service manager's watchdog while the daemon really serves.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"

namespace detshare {

// Asks the daemon, through its socket, as any client may. A reply shows that connections are
// accepted, that gRPC serves, and that the service of clients is not locked up. It says nothing of
// the driver on purpose: a kernel that runs for minutes may hold the driver's lock for that long,
// and to end the daemon would end everybody's work. DeadlineExceeded without a reply, Unavailable
// without a connection.
absl::Status AskDaemon(const std::string& socket, std::chrono::milliseconds timeout);

// Calls `feed` every `period` as long as `check` is content, on a thread of its own. A check that
// fails is logged, and made again after the next period.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds period, std::function<absl::Status()> check,
           std::function<void()> feed);
  ~Watchdog();  // waits for a check that is being made
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Run();

  const std::chrono::milliseconds period_;
  const std::function<absl::Status()> check_;
  const std::function<void()> feed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace detshare
