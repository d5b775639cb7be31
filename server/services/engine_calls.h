// Lets the supervisor ask its engines, at their own sockets.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.grpc.pb.h"
#include "proto/mutex.h"
#include "server/engines/running_engines.h"

namespace detshare {

class EngineCalls {
 public:
  static constexpr size_t kMaxWaiting = 64;
  struct Reply {
    EngineInfo engine;
    absl::StatusOr<proto::Status> status;
  };

  // `timeout` applies to each round of calls. `engines` outlives this object.
  EngineCalls(const RunningEngines& engines, std::chrono::milliseconds timeout);
  ~EngineCalls();  // completes all jobs first
  EngineCalls(const EngineCalls&) = delete;
  EngineCalls& operator=(const EngineCalls&) = delete;

  // Runs `job` on a thread for that, one job after the other, because calls to other processes take
  // time. Returns false, and does nothing, if too many jobs wait. Any thread may call it.
  bool Do(std::function<void()> job);

  // ---- Called in a job.
  // Asks each engine for its status. An engine that does not reply has an error as its status.
  std::vector<Reply> AskStatus();
  // Ends sessions of the engine: all of the request's, or none.
  absl::Status End(const EngineInfo& engine, const proto::EndSessionsRequest& request);
  // Changes the settings of all engines. Returns false if an engine does not listen, because it begins
  // or ends. Returns the error of an engine that refuses the settings or, if none does, of one that
  // does not reply (Aborted), and names it; other engines may have changed theirs.
  absl::StatusOr<bool> SetPolicy(const proto::PolicySetting& setting);
  absl::StatusOr<bool> SetTenant(const proto::TenantSetting& setting);
  // The traces that engines take, by the engines' processes.
  struct Trace {
    uint64_t number = 0;  // 0: the engine has not said
    bool silent = false;  // it has not replied, and is asked only to end its trace
  };
  using Traces = std::map<pid_t, Trace>;
  // Begins a trace in each engine that `traces` does not name, and adds it there. Returns the error
  // of an engine that refuses, and adds the others; engines that do not reply are no error.
  absl::Status StartTraces(Traces* traces);
  // Appends to `chunk` what the engines have traced since the last call, and names those that have
  // not replied. `last` ends their traces.
  void FetchTraces(bool last, Traces* traces, proto::TraceChunk* chunk);

 private:
  void Run();
  // Makes one call to each of the engines. `call` starts it.
  template <typename Reply, typename Call>
  std::vector<std::pair<EngineInfo, absl::StatusOr<Reply>>> Ask(std::vector<EngineInfo> engines,
                                                                const Call& call);

  const RunningEngines& engines_;
  const std::chrono::milliseconds timeout_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace detshare
