// Feeds the service manager's watchdog while the daemon really serves.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"

namespace detshare {

// What any client may ask, asked by the daemon itself through its socket: an answer shows that
// connections are accepted, that gRPC serves, that the table of sessions is not locked up and that
// every device answers. DeadlineExceeded without an answer, Unavailable without a connection.
absl::StatusOr<proto::Status> AskDaemon(const std::string& socket,
                                        std::chrono::milliseconds patience);
// Whether a daemon that answers so can be left alone: not when a device is lost.
absl::Status CheckAnswer(const proto::Status& status);

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
