// The engines that run, for the supervisor's threads that ask them or show them.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "proto/mutex.h"

namespace detshare {

struct EngineInfo {
  std::string group;
  pid_t pid = -1;
  std::string directory;  // with the engine's own socket, which only the daemon's user reaches
};

// Any thread may call it.
class RunningEngines {
 public:
  void Add(EngineInfo engine) {
    const MutexLock lock(&mutex_);
    engines_.push_back(std::move(engine));
  }
  void Remove(pid_t pid) {
    const MutexLock lock(&mutex_);
    std::erase_if(engines_, [pid](const EngineInfo& engine) { return engine.pid == pid; });
  }
  // Those that serve no group yet, and can get one.
  void SetSpares(std::vector<pid_t> spares) {
    const MutexLock lock(&mutex_);
    spares_ = std::move(spares);
  }
  std::vector<pid_t> Spares() const {
    const MutexLock lock(&mutex_);
    return spares_;
  }
  // Those of groups, in the order of the groups' names.
  std::vector<EngineInfo> All() const {
    std::vector<EngineInfo> engines;
    {
      const MutexLock lock(&mutex_);
      engines = engines_;
    }
    std::sort(engines.begin(), engines.end(),
              [](const EngineInfo& a, const EngineInfo& b) { return a.group < b.group; });
    return engines;
  }

 private:
  mutable Mutex mutex_;
  std::vector<EngineInfo> engines_ ABSL_GUARDED_BY(mutex_);
  std::vector<pid_t> spares_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare
