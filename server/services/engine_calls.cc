#include "server/services/engine_calls.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/local_call.h"
#include "server/engines/engine_process.h"

namespace detshare {

namespace {

absl::Status Ending() {
  // UNAVAILABLE would mean that nothing has replied.
  return absl::AbortedError("detshared is ending and has not done this; ask its successor");
}

// Ends a request whose caller has gone. Returns whether it has.
bool EndedAsGone(const EngineCalls::Caller& caller) {
  if (!caller.gone()) return false;
  caller.end(absl::CancelledError("the client waits no longer"));
  return true;
}

}  // namespace

EngineCalls::EngineCalls(const RunningEngines& engines, const Times& times)
    : engines_(engines), times_(times) {
  changing_ = std::thread([this] { RunJobs(); });
  reading_ = std::thread([this] { RunReads(); });
}

EngineCalls::~EngineCalls() {
  Stop();
  changing_.join();
  reading_.join();
}

template <typename Queue>
void EngineCalls::Add(typename Queue::value_type request, Queue* queue) {
  MutexLock lock(&mutex_);
  if (!stop_ && queue->size() < kMaxWaiting) {
    queue->push_back(std::move(request));
    changed_.SignalAll();
    return;
  }
  const absl::Status why =
      stop_ ? Ending() : absl::ResourceExhaustedError("too many such requests are waiting");
  lock.Unlock();
  request.caller.end(why);
}

void EngineCalls::Do(Caller caller, std::function<absl::Status()> job) {
  Add({std::move(caller), std::move(job)}, &jobs_);
}

void EngineCalls::Read(Caller caller, std::function<absl::Status(const Replies& replies)> read) {
  Add({std::move(caller), std::move(read)}, &reads_);
}

void EngineCalls::Stop() {
  std::deque<Job> jobs;
  std::vector<Reading> reads;
  {
    const MutexLock lock(&mutex_);
    stop_ = true;
    jobs.swap(jobs_);
    reads.swap(reads_);
  }
  changed_.SignalAll();
  for (const Job& job : jobs) job.caller.end(Ending());
  for (const Reading& one : reads) one.caller.end(Ending());
}

void EngineCalls::RunJobs() {
  for (;;) {
    MutexLock lock(&mutex_);
    changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stop_ || !jobs_.empty();
    });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.Unlock();
    if (!EndedAsGone(job.caller)) job.caller.end(job.run());
  }
}

void EngineCalls::RunReads() {
  for (;;) {
    MutexLock lock(&mutex_);
    changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stop_ || !reads_.empty();
    });
    if (reads_.empty()) return;
    std::vector<Reading> reads;
    reads.swap(reads_);
    lock.Unlock();
    std::erase_if(reads, [](const Reading& one) { return EndedAsGone(one.caller); });
    if (reads.empty()) continue;
    const Replies replies = AskStatus(SilentEngines());
    for (const Reading& one : reads) one.caller.end(one.read(replies));
  }
}

template <typename Reply, typename Call>
std::vector<std::pair<EngineInfo, absl::StatusOr<Reply>>> EngineCalls::Ask(
    std::vector<EngineInfo> engines, const Call& call, const std::set<pid_t>& hurried) {
  std::vector<std::pair<EngineInfo, absl::StatusOr<Reply>>> replies;
  std::vector<size_t> asked;
  std::vector<std::unique_ptr<proto::Admin::Stub>> stubs;
  std::vector<Question<Reply>> questions;
  std::vector<std::chrono::milliseconds> timeouts;
  for (EngineInfo& engine : engines) {
    const auto channel = ConnectLocally(EngineSocket(engine.directory));
    if (channel.ok()) {
      asked.push_back(replies.size());
      timeouts.push_back(hurried.contains(engine.pid) ? times_.silent : times_.reply);
      stubs.push_back(proto::Admin::NewStub(*channel));
      questions.push_back(
          [&call, engine, stub = stubs.back().get()](auto* context, auto* reply, auto done) {
            call(engine, *stub, context, reply, std::move(done));
          });
    }
    replies.emplace_back(std::move(engine),
                         channel.ok() ? absl::UnavailableError("not asked yet") : channel.status());
  }
  std::vector<absl::StatusOr<Reply>> received = AskAll(questions, timeouts);
  for (size_t i = 0; i < asked.size(); ++i) replies[asked[i]].second = std::move(received[i]);
  return replies;
}

namespace {

absl::Status ErrorOf(const EngineInfo& engine, const absl::Status& status) {
  // To a client, DeadlineExceeded would mean that the supervisor does not reply.
  if (absl::IsDeadlineExceeded(status))
    return absl::AbortedError(
        absl::StrCat("the engine of isolation group ", engine.group, " does not reply"));
  return {status.code(), absl::StrCat("the engine of isolation group ", engine.group, ": ",
                                      std::string(status.message()))};
}

template <typename Reply>
absl::StatusOr<bool> HaveAll(
    const std::vector<std::pair<EngineInfo, absl::StatusOr<Reply>>>& replies) {
  bool all = true;
  absl::Status silent;
  for (const auto& [engine, reply] : replies) {
    if (reply.ok()) continue;
    if (absl::IsUnavailable(reply.status())) {
      all = false;
    } else if (absl::IsDeadlineExceeded(reply.status())) {
      silent = ErrorOf(engine, reply.status());
    } else {
      return ErrorOf(engine, reply.status());
    }
  }
  if (!silent.ok()) return silent;
  return all;
}

}  // namespace

EngineCalls::Replies EngineCalls::AskStatus() { return AskStatus(std::set<pid_t>()); }

EngineCalls::Replies EngineCalls::AskStatus(const std::set<pid_t>& hurried) {
  const proto::GetStatusRequest request;
  Replies replies;
  for (auto& [engine, status] : Ask<proto::Status>(
           engines_.All(),
           [&request](const EngineInfo&, proto::Admin::Stub&stub, auto*context, auto*reply,
                      auto done) {
             stub.async()->GetStatus(context, &request, reply, std::move(done));
           },
           hurried)) {
    replies.push_back({std::move(engine), std::move(status)});
  }
  const Clock::time_point again = Clock::now() + times_.again;
  const MutexLock lock(&mutex_);
  std::map<pid_t, Clock::time_point> silent;  // without engines that have ended
  for (const Reply& reply : replies) {
    if (!absl::IsDeadlineExceeded(reply.status.status())) continue;
    const pid_t pid = reply.engine.pid;
    silent[pid] = hurried.contains(pid) ? silent_[pid] : again;
  }
  silent_.swap(silent);
  return replies;
}

std::set<pid_t> EngineCalls::SilentEngines() const {
  const Clock::time_point now = Clock::now();
  const MutexLock lock(&mutex_);
  std::set<pid_t> silent;
  for (const auto& [pid, again] : silent_) {
    if (now < again) silent.insert(pid);
  }
  return silent;
}

absl::StatusOr<bool> EngineCalls::SetPolicy(const proto::PolicySetting& setting) {
  return HaveAll(Ask<proto::PolicySetting>(
      engines_.All(), [&setting](const EngineInfo&, proto::Admin::Stub& stub, auto* context,
                                 auto* reply, auto done) {
        stub.async()->SetPolicy(context, &setting, reply, std::move(done));
      }));
}

absl::StatusOr<bool> EngineCalls::SetTenant(const proto::TenantSetting& setting) {
  return HaveAll(Ask<proto::TenantSetting>(
      engines_.All(), [&setting](const EngineInfo&, proto::Admin::Stub& stub, auto* context,
                                 auto* reply, auto done) {
        stub.async()->SetTenant(context, &setting, reply, std::move(done));
      }));
}

absl::Status EngineCalls::End(const EngineInfo& engine, const proto::EndSessionsRequest& request) {
  return Ask<proto::EndedSessions>({engine},
                                   [&request](const EngineInfo&, proto::Admin::Stub& stub,
                                              auto* context, auto* reply, auto done) {
                                     stub.async()->EndSessions(context, &request, reply,
                                                               std::move(done));
                                   })[0]
      .second.status();
}

absl::Status EngineCalls::StartTraces(Traces* traces) {
  std::vector<EngineInfo> engines = engines_.All();
  std::erase_if(engines, [&](const EngineInfo& engine) { return traces->contains(engine.pid); });
  const proto::StartTraceRequest request;
  absl::Status refused;
  for (const auto& [engine, started] : Ask<proto::TraceStarted>(
           std::move(engines), [&request](const EngineInfo&, proto::Admin::Stub&stub, auto*context,
                                          auto*reply, auto done) {
             stub.async()->StartTrace(context, &request, reply, std::move(done));
           })) {
    if (started.ok()) {
      traces->emplace(engine.pid, Trace{.number = started->trace()});
    } else if (absl::IsFailedPrecondition(started.status())) {
      refused = ErrorOf(engine, started.status());
    } else {
      traces->emplace(engine.pid, Trace{.silent = true});
    }
  }
  return refused;
}

void EngineCalls::FetchTraces(bool last, Traces* traces, proto::TraceChunk* chunk) {
  std::vector<EngineInfo> engines;
  for (EngineInfo& engine : engines_.All()) {
    const auto found = traces->find(engine.pid);
    if (found == traces->end()) continue;
    if (found->second.silent) chunk->add_silent_groups(engine.group);
    if (!found->second.silent || (last && found->second.number != 0))
      engines.push_back(std::move(engine));
  }
  std::map<pid_t, proto::FetchTraceRequest> requests;
  for (const EngineInfo& engine : engines) {
    proto::FetchTraceRequest& request = requests[engine.pid];
    request.set_trace((*traces)[engine.pid].number);
    request.set_last(last);
  }
  for (auto& [engine, part] : Ask<proto::TraceChunk>(
           std::move(engines), [&requests](const EngineInfo&asked, proto::Admin::Stub&stub,
                                           auto*context, auto*reply, auto done) {
             stub.async()->FetchTrace(context, &requests.at(asked.pid), reply, std::move(done));
           })) {
    if (part.ok()) {
      chunk->mutable_sessions()->MergeFrom(part->sessions());
    } else if (!std::exchange((*traces)[engine.pid].silent, true)) {
      chunk->add_silent_groups(engine.group);
    }
  }
}

}  // namespace detshare
