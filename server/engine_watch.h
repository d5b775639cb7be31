// Lets the supervisor end engines that hang: their group's next program gets a new engine.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "absl/status/status.h"
#include "proto/mutex.h"
#include "server/engines/running_engines.h"

namespace detshare {

// Asks each engine from time to time while there are engines, on a thread of its own. An engine hangs if
// it has replied once and then not to kMaxUnanswered questions in a row. So a host that stood still, or a
// slow start, ends no engine. Neither is an engine ended that somebody has stopped, for a debugger for
// instance.
class EngineWatch {
 public:
  static constexpr int kMaxUnanswered = 4;
  struct Work {
    // Asks an engine. OK: it has replied.
    std::function<absl::Status(const EngineInfo& engine)> ask;
    // Whether somebody has stopped the engine's process.
    std::function<bool(const EngineInfo& engine)> stopped;
    // Called once for an engine that hangs. The engine may have ended meanwhile.
    std::function<void(const EngineInfo& engine)> end;
  };

  // `engines` outlives the object. `period` is the time between the questions.
  EngineWatch(const RunningEngines& engines, std::chrono::milliseconds period, Work work);
  ~EngineWatch();  // waits for a question in progress
  EngineWatch(const EngineWatch&) = delete;
  EngineWatch& operator=(const EngineWatch&) = delete;

  // An engine has begun. Any thread may call it.
  void Begun();

 private:
  struct Watched {
    bool replied = false;
    int unanswered = 0;  // in a row
  };

  void Run();
  // Waits for the next questions. Returns false if the object ends.
  bool Await() ABSL_LOCKS_EXCLUDED(mutex_);
  void Ask(const EngineInfo& engine, Watched& watched) const;

  const RunningEngines& engines_;
  const std::chrono::milliseconds period_;
  const Work work_;
  std::map<pid_t, Watched> watched_;  // used by the thread only
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // There may be engines. Without any the thread sleeps until one begins.
  bool some_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Whether a signal or a debugger has stopped all of the process.
bool IsStopped(pid_t pid);

}  // namespace detshare
