// Observes all processes of a daemon with strict isolation: asks each process once a second for its
// observation, and shows the sum (domain_sum.h) as that of one daemon.
//
// A thread of its own asks. HTTP requests get the latest sum and wait for no process. A process
// that does not reply in time delays only its own figures, and is asked less often.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/observation.grpc.pb.h"
#include "server/strict/domain_process.h"
#include "server/web/domain_sum.h"
#include "server/web/http_server.h"
#include "server/web/observation.h"
#include "server/web/pages.h"

namespace detshare {

// Any thread may call it.
class DomainsObserver {
 public:
  struct Options {
    std::string directory;             // directory of the domains
    bool dashboard = true;             // the dashboard, and the JSON that it shows
    std::vector<std::string> tenants;  // the configured tenants
    // Sessions at a time over all processes; 0: as many as they have room for.
    size_t max_sessions = 0;
    std::chrono::milliseconds period{1000};
    std::chrono::milliseconds timeout{3000};  // for a reply
    // Before a process that did not reply is asked again.
    std::chrono::milliseconds silence{10'000};
    std::chrono::milliseconds beginning{30'000};  // in which a new process need not reply
  };
  explicit DomainsObserver(Options options);
  ~DomainsObserver();
  DomainsObserver(const DomainsObserver&) = delete;
  DomainsObserver& operator=(const DomainsObserver&) = delete;

  // These calls return quickly.
  void Begun(uid_t user, pid_t process);
  void Ended(uid_t user, pid_t process, DomainEnd how);
  void SetMaxSessions(size_t max);

  Observation Observe();
  HttpResponse Respond(const HttpRequest& request) { return pages_.Respond(request); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Process {
    std::string socket;
    std::shared_ptr<proto::Observing::Stub> stub;  // null: not connected
    bool received = false;
    Clock::time_point begun, ask_at;
  };
  struct Change {
    uid_t user = 0;
    pid_t process = 0;
    std::optional<DomainEnd> end;  // nothing: the process has begun
  };

  void Run();
  void TakeChanges();
  void Ask(double seconds);

  const Options options_;
  const Clock::time_point begin_ = Clock::now();

  std::map<pid_t, Process> processes_;  // used by thread_ only

  std::mutex mutex_;  // guards what follows
  std::vector<Change> changes_;
  DomainSum sum_;
  size_t max_sessions_;

  Pages pages_;

  std::mutex stop_mutex_;  // guards what follows
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace detshare
