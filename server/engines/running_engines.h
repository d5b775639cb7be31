// The engines that run, for the supervisor's threads that ask them.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <string>
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
  // In the order of their groups' names.
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
};

}  // namespace detshare
