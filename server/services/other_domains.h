// Reaches the other processes of this daemon, with strict isolation. When an operator asks one
// process for the status, or ends sessions, the request covers all of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.grpc.pb.h"
#include "server/strict/domain_process.h"

namespace detshare {

class OtherDomains {
 public:
  static constexpr size_t kMaxWaiting = 64;
  struct Reply {
    DomainInfo domain;
    absl::StatusOr<proto::Status> status;
  };

  // `own_directory` is the directory of this process's domain. `timeout` applies to each round of
  // calls.
  OtherDomains(std::string own_directory, std::chrono::milliseconds timeout);
  ~OtherDomains();  // completes all jobs first
  OtherDomains(const OtherDomains&) = delete;
  OtherDomains& operator=(const OtherDomains&) = delete;

  // Runs `job` on a thread for that, one job after the other, because calls to other processes take
  // time. Returns false, and does nothing, if too many jobs wait. Any thread may call it.
  bool Do(std::function<void()> job);

  // ---- Called in a job.
  // Asks each other domain for its status at its own socket. A domain that does not reply has an
  // error as its status.
  std::vector<Reply> Ask();
  // Ends sessions of `domain`: all of the request's, or none.
  absl::Status End(const DomainInfo& domain, const proto::EndSessionsRequest& request);

 private:
  void Run();

  const std::string own_directory_;
  const std::chrono::milliseconds timeout_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace detshare
