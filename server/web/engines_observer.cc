#include "server/web/engines_observer.h"

#include <pthread.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "coroutine_runtime/clock.h"
#include "server/base/local_call.h"
#include "server/web/observation_message.h"
#include "server/web/process_figures.h"

namespace detshare {

EnginesObserver::EnginesObserver(const Owners& owners, Options options)
    : owners_(owners),
      options_(std::move(options)),
      max_sessions_(options_.max_sessions),
      pages_([this] { return Observe(); }, [] { return absl::OkStatus(); }, options_.dashboard) {
  for (const std::string& tenant : options_.tenants) sum_.Reserve(tenant);
  thread_ = std::thread([this] { Run(); });
}

EnginesObserver::~EnginesObserver() {
  {
    const MutexLock lock(&stop_mutex_);
    stop_ = true;
  }
  stopped_.SignalAll();
  thread_.join();
}

void EnginesObserver::Begun(const EngineInfo& engine) {
  const MutexLock lock(&mutex_);
  changes_.push_back({engine, std::nullopt});
}

void EnginesObserver::Ended(const EngineInfo& engine, EngineEnd how) {
  const MutexLock lock(&mutex_);
  changes_.push_back({engine, how});
}

void EnginesObserver::SetMaxSessions(size_t max) {
  const MutexLock lock(&mutex_);
  max_sessions_ = max;
}

void EnginesObserver::Run() {
  pthread_setname_np(pthread_self(), "observer");
  Clock::time_point last = Clock::now();
  for (;;) {
    const Clock::time_point now = Clock::now();
    Ask(std::chrono::duration<double>(now - last).count());
    last = now;
    pages_.Note();
    MutexLock lock(&stop_mutex_);
    if (stopped_.WaitUntil(&stop_mutex_, now + options_.period,
                           [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(stop_mutex_) { return stop_; }))
      return;
  }
}

void EnginesObserver::TakeChanges() {
  std::vector<Change> changes;
  {
    const MutexLock lock(&mutex_);
    changes.swap(changes_);
  }
  for (const Change& change : changes) {
    if (change.end.has_value()) {
      processes_.erase(change.engine.pid);
      const MutexLock lock(&mutex_);
      sum_.Ended(change.engine.pid, *change.end);
      continue;
    }
    Process& one = processes_[change.engine.pid];
    one.socket = EngineSocket(change.engine.directory);
    one.begun = one.ask_at = Clock::now();
    const MutexLock lock(&mutex_);
    sum_.Begun(change.engine.group, change.engine.pid);
  }
}

void EnginesObserver::Ask(double seconds) {
  TakeChanges();
  const proto::ObserveRequest request;
  std::vector<pid_t> asked, missed;
  std::vector<Question<proto::Observation>> questions;
  const Clock::time_point begin = Clock::now();
  for (auto& [process, one] : processes_) {
    if (begin < one.ask_at) continue;
    if (one.stub == nullptr) {
      const auto channel = ConnectLocally(one.socket);
      if (!channel.ok()) {
        // A process that has just begun has no socket yet.
        if (one.received || begin - one.begun > options_.beginning) missed.push_back(process);
        continue;
      }
      one.stub = proto::Observing::NewStub(*channel);
    }
    asked.push_back(process);
    questions.push_back([&request, stub = one.stub.get()](auto* context, auto* reply, auto done) {
      stub->async()->Observe(context, &request, reply, std::move(done));
    });
  }
  const std::vector<absl::StatusOr<proto::Observation>> replies =
      AskAll(questions, options_.timeout);
  std::map<pid_t, Observation> received;
  for (size_t i = 0; i < asked.size(); ++i) {
    Process& one = processes_.at(asked[i]);
    // A new process may listen at the socket of an earlier one.
    if (replies[i].ok() && replies[i]->pid() == asked[i]) {
      one.received = true;
      received[asked[i]] = FromMessage(*replies[i]);
      continue;
    }
    one.stub.reset();
    if (one.received || begin - one.begun > options_.beginning) missed.push_back(asked[i]);
  }
  const MutexLock lock(&mutex_);
  for (const pid_t process : missed) {
    // A process that has ended meanwhile has not failed to reply.
    if (std::any_of(changes_.begin(), changes_.end(),
                    [&](const Change& change) { return change.engine.pid == process; }))
      continue;
    processes_.at(process).ask_at = begin + options_.silence;
    sum_.Missed(process);
  }
  sum_.Update(std::move(received), seconds);
}

Observation EnginesObserver::Observe() {
  const MutexLock lock(&mutex_);
  Observation all = sum_.Sum();
  all.at_ns = RealClock().NowNanoseconds();
  all.unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
  all.uptime_seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  all.process = ReadProcessFigures();
  if (max_sessions_ != 0) all.max_sessions = max_sessions_;
  for (auto& [name, tenant] : all.tenants) tenant.owner = owners_.OfTenant(name);
  return all;
}

}  // namespace detshare
