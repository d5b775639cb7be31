#include "server/services/engine_calls.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/local_call.h"
#include "server/engines/engine_process.h"

namespace detshare {

EngineCalls::EngineCalls(const RunningEngines& engines, std::chrono::milliseconds timeout)
    : engines_(engines), timeout_(timeout) {
  thread_ = std::thread([this] { Run(); });
}

EngineCalls::~EngineCalls() {
  {
    const MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

bool EngineCalls::Do(std::function<void()> job) {
  {
    const MutexLock lock(&mutex_);
    if (jobs_.size() >= kMaxWaiting) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.SignalAll();
  return true;
}

void EngineCalls::Run() {
  for (;;) {
    MutexLock lock(&mutex_);
    changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stop_ || !jobs_.empty();
    });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.Unlock();
    job();
  }
}

template <typename Reply, typename Call>
std::vector<std::pair<EngineInfo, absl::StatusOr<Reply>>> EngineCalls::AskEach(const Call& call) {
  std::vector<std::pair<EngineInfo, absl::StatusOr<Reply>>> replies;
  std::vector<size_t> asked;
  std::vector<Question<Reply>> questions;
  for (EngineInfo& engine : engines_.All()) {
    const auto channel = ConnectLocally(EngineSocket(engine.directory));
    replies.emplace_back(std::move(engine),
                         channel.ok() ? absl::UnavailableError("not asked yet") : channel.status());
    if (!channel.ok()) continue;
    asked.push_back(replies.size() - 1);
    const std::shared_ptr<proto::Admin::Stub> stub = proto::Admin::NewStub(*channel);
    questions.push_back([call, stub](auto* context, auto* reply, auto done) {
      call(*stub, context, reply, std::move(done));
    });
  }
  std::vector<absl::StatusOr<Reply>> received = AskAll(std::move(questions), timeout_);
  for (size_t i = 0; i < asked.size(); ++i) replies[asked[i]].second = std::move(received[i]);
  return replies;
}

namespace {

template <typename Reply>
absl::Status FirstError(const std::vector<std::pair<EngineInfo, absl::StatusOr<Reply>>>& replies) {
  for (const auto& [engine, reply] : replies) {
    if (reply.ok()) continue;
    return {reply.status().code(), absl::StrCat("the engine of isolation group ", engine.group,
                                                ": ", std::string(reply.status().message()))};
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<EngineCalls::Reply> EngineCalls::AskStatus() {
  const auto request = std::make_shared<proto::GetStatusRequest>();
  std::vector<Reply> replies;
  for (auto& [engine, status] : AskEach<proto::Status>(
           [request](proto::Admin::Stub&stub, auto*context, auto*reply, auto done) {
             stub.async()->GetStatus(context, request.get(), reply, std::move(done));
           })) {
    replies.push_back({std::move(engine), std::move(status)});
  }
  return replies;
}

absl::Status EngineCalls::SetPolicy(const proto::PolicySetting& setting) {
  const auto request = std::make_shared<proto::PolicySetting>(setting);
  return FirstError(AskEach<proto::PolicySetting>(
      [request](proto::Admin::Stub& stub, auto* context, auto* reply, auto done) {
        stub.async()->SetPolicy(context, request.get(), reply, std::move(done));
      }));
}

absl::Status EngineCalls::SetTenant(const proto::TenantSetting& setting) {
  const auto request = std::make_shared<proto::TenantSetting>(setting);
  return FirstError(AskEach<proto::TenantSetting>(
      [request](proto::Admin::Stub& stub, auto* context, auto* reply, auto done) {
        stub.async()->SetTenant(context, request.get(), reply, std::move(done));
      }));
}

absl::Status EngineCalls::End(const EngineInfo& engine, const proto::EndSessionsRequest& request) {
  const auto channel = ConnectLocally(EngineSocket(engine.directory));
  if (!channel.ok()) return channel.status();
  const std::shared_ptr<proto::Admin::Stub> stub = proto::Admin::NewStub(*channel);
  const auto kept = std::make_shared<proto::EndSessionsRequest>(request);
  const Question<proto::EndedSessions> question = [kept, stub](auto* context, auto* reply,
                                                               auto done) {
    stub->async()->EndSessions(context, kept.get(), reply, std::move(done));
  };
  return AskAll<proto::EndedSessions>({question}, timeout_)[0].status();
}

}  // namespace detshare
