// The other processes of this daemon, with strict isolation: whoever may administer and asks one of them
// who is there, or ends sessions, means all of them.
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

  // `own_directory`: of this process. `timeout`: for each round of questions.
  OtherDomains(std::string own_directory, std::chrono::milliseconds timeout);
  ~OtherDomains();  // when all that was begun is done
  OtherDomains(const OtherDomains&) = delete;
  OtherDomains& operator=(const OtherDomains&) = delete;

  // Does it on the thread for that, one after the other: questions take time. False, and nothing is
  // done, when too many wait. Any thread.
  bool Do(std::function<void()> job);

  // ---- In such a job.
  // The status of each, at its own socket, with those that do not answer; not of this process.
  std::vector<Reply> Ask();
  // Ends sessions of that one, all or none.
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
