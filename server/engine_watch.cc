#include "server/engine_watch.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace detshare {

EngineWatch::EngineWatch(const RunningEngines& engines, std::chrono::milliseconds period, Work work)
    : engines_(engines), period_(period), work_(std::move(work)) {
  thread_ = std::thread([this] { Run(); });
}

EngineWatch::~EngineWatch() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void EngineWatch::Begun() {
  {
    const MutexLock lock(&mutex_);
    some_ = true;
  }
  changed_.SignalAll();
}

bool EngineWatch::Await() {
  MutexLock lock(&mutex_);
  changed_.Wait(&mutex_,
                [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return some_ || stopping_; });
  some_ = false;  // an engine that begins from now on counts for the next wait
  return !changed_.WaitFor(&mutex_, period_,
                           [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; });
}

void EngineWatch::Run() {
  while (Await()) {
    const std::vector<EngineInfo> engines = engines_.All();
    std::map<pid_t, Watched> before = std::move(watched_);
    watched_.clear();
    for (const EngineInfo& engine : engines) {
      Watched& watched = watched_[engine.pid] = before[engine.pid];
      Ask(engine, watched);
    }
    if (!engines.empty()) Begun();
  }
}

void EngineWatch::Ask(const EngineInfo& engine, Watched& watched) const {
  if (watched.unanswered == kMaxUnanswered) return;  // it is ended already
  if (work_.ask(engine).ok()) {
    watched = {.replied = true};
  } else if (work_.stopped(engine)) {
    watched.unanswered = 0;
  } else if (watched.replied && ++watched.unanswered == kMaxUnanswered) {
    work_.end(engine);
  }
}

bool IsStopped(pid_t pid) {
  std::string text;
  std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/stat")), text);
  // The name, in parentheses, may hold anything.
  const size_t state = text.rfind(") ");
  return state != std::string::npos && (text[state + 2] == 'T' || text[state + 2] == 't');
}

}  // namespace detshare
