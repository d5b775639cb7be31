// Observes all engines of a daemon: asks each one once a second for its observation, and shows the sum (engine_sum.h) as that of one daemon.
//
// A thread of its own asks. HTTP requests get the latest sum and wait for no process. A process
// that does not reply in time delays only its own figures, and is asked less often.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/mutex.h"
#include "proto/observation.grpc.pb.h"
#include "server/access/owners.h"
#include "server/engines/engine_process.h"
#include "server/engines/running_engines.h"
#include "server/web/engine_sum.h"
#include "server/web/http_server.h"
#include "server/web/observation.h"
#include "server/web/pages.h"

namespace detshare {

// Any thread may call it.
class EnginesObserver {
 public:
  struct Options {
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
  // `owners` outlives this object.
  EnginesObserver(const Owners& owners, Options options);
  ~EnginesObserver();
  EnginesObserver(const EnginesObserver&) = delete;
  EnginesObserver& operator=(const EnginesObserver&) = delete;

  // These calls return quickly.
  void Begun(const EngineInfo& engine);
  void Ended(const EngineInfo& engine, EngineEnd how);
  void SetMaxSessions(size_t max);

  Observation Observe();
  HttpResponse Respond(const HttpRequest& request) { return pages_.Respond(request); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Process {
    std::string socket;
    std::unique_ptr<proto::Observing::Stub> stub;  // null: not connected
    bool received = false;
    Clock::time_point begun, ask_at;
  };
  struct Change {
    EngineInfo engine;
    std::optional<EngineEnd> end;  // nothing: the process has begun
  };

  void Run();
  void TakeChanges();
  void Ask(double seconds);

  const Owners& owners_;
  const Options options_;
  const Clock::time_point begin_ = Clock::now();

  std::map<pid_t, Process> processes_;  // used by thread_ only

  Mutex mutex_;
  std::vector<Change> changes_ ABSL_GUARDED_BY(mutex_);
  EngineSum sum_ ABSL_GUARDED_BY(mutex_);
  size_t max_sessions_ ABSL_GUARDED_BY(mutex_);

  Pages pages_;

  Mutex stop_mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;
};

}  // namespace detshare
