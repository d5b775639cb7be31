// Lets the supervisor ask its engines, at their own sockets.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.grpc.pb.h"
#include "proto/mutex.h"
#include "server/engines/running_engines.h"

namespace detshare {

// Calls to other processes take time, so two threads make them: one for requests that read, and one
// for the others, which change something. So no change waits while engines are asked for a status.
class EngineCalls {
 public:
  // The requests of each kind that may wait.
  static constexpr size_t kMaxWaiting = 64;
  struct Reply {
    EngineInfo engine;
    absl::StatusOr<proto::Status> status;
  };
  // Who waits for the end of a request.
  struct Caller {
    // Whether the caller waits no longer.
    std::function<bool()> gone;
    // Gets the result, once: that of the request's function, or why it was not called. That is
    // ResourceExhausted if too many requests wait, Cancelled if the caller has gone, and
    // Aborted after Stop().
    std::function<void(const absl::Status& result)> end;
  };
  using Replies = std::vector<Reply>;
  struct Times {
    std::chrono::milliseconds reply;  // for the replies to a round of calls
    // For the status of an engine that has not told it in that time. Otherwise each status would
    // take as long while one engine hangs.
    std::chrono::milliseconds silent{500};
    // Until such an engine gets the whole time once more. It may only be slow.
    std::chrono::milliseconds again{10'000};
  };

  // `engines` outlives this object.
  EngineCalls(const RunningEngines& engines, const Times& times);
  const RunningEngines& engines() const { return engines_; }
  ~EngineCalls();  // calls Stop(), and completes the requests that have begun
  EngineCalls(const EngineCalls&) = delete;
  EngineCalls& operator=(const EngineCalls&) = delete;

  // ---- Any thread may call these. They do not wait.
  // Runs `job`, one job after the other.
  void Do(Caller caller, std::function<absl::Status()> job);
  // Asks as AskStatus() does, after this call, and calls `read` with the replies. Does not wait
  // long for engines that were silent shortly before. Requests that wait at the same time share
  // the replies.
  void Read(Caller caller, std::function<absl::Status(const Replies& replies)> read);
  // The supervisor ends: ends the requests that wait, and later ones, without calling their
  // functions. Those that have begun go on.
  void Stop();

  // ---- Called in a job.
  // Asks each engine for its status. An engine that does not reply has an error as its status.
  Replies AskStatus();
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
  using Clock = std::chrono::steady_clock;
  struct Job {
    Caller caller;
    std::function<absl::Status()> run;
  };
  struct Reading {
    Caller caller;
    std::function<absl::Status(const Replies&)> read;
  };

  // Adds a request to its queue, or ends it.
  template <typename Queue>
  void Add(typename Queue::value_type request, Queue* queue) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunJobs();   // runs on changing_
  void RunReads();  // runs on reading_
  // As AskStatus(), with little time for the engines that `hurried` names.
  Replies AskStatus(const std::set<pid_t>& hurried) ABSL_LOCKS_EXCLUDED(mutex_);
  // The engines that have been silent and do not get the whole time yet.
  std::set<pid_t> SilentEngines() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes one call to each of the engines. `call` starts it. Those that `hurried` names have little
  // time.
  template <typename Reply, typename Call>
  std::vector<std::pair<EngineInfo, absl::StatusOr<Reply>>> Ask(
      std::vector<EngineInfo> engines, const Call& call, const std::set<pid_t>& hurried = {});

  const RunningEngines& engines_;
  const Times times_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<Reading> reads_ ABSL_GUARDED_BY(mutex_);
  // The engines that have not told their status in time, and when they get the whole time again.
  std::map<pid_t, Clock::time_point> silent_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread changing_, reading_;
};

}  // namespace detshare
