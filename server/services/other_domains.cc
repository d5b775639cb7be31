#include "server/services/other_domains.h"

#include <memory>
#include <utility>

#include "server/base/local_call.h"

namespace detshare {

OtherDomains::OtherDomains(std::string own_directory, std::chrono::milliseconds timeout)
    : own_directory_(std::move(own_directory)), timeout_(timeout) {
  thread_ = std::thread([this] { Run(); });
}

OtherDomains::~OtherDomains() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool OtherDomains::Do(std::function<void()> job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (jobs_.size() >= kMaxWaiting) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  return true;
}

void OtherDomains::Run() {
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
  }
}

std::vector<OtherDomains::Reply> OtherDomains::Ask() {
  const auto request = std::make_shared<proto::GetStatusRequest>();
  std::vector<Reply> replies;
  std::vector<size_t> asked;
  std::vector<Question<proto::Status>> questions;
  for (DomainInfo& domain : DomainsBeside(own_directory_)) {
    if (domain.socket == DomainSocket(own_directory_)) continue;
    const auto channel = ConnectLocally(domain.socket);
    replies.push_back({std::move(domain),
                       channel.ok() ? absl::UnavailableError("not asked yet") : channel.status()});
    if (!channel.ok()) continue;
    asked.push_back(replies.size() - 1);
    const std::shared_ptr<proto::Admin::Stub> stub = proto::Admin::NewStub(*channel);
    questions.push_back([request, stub](auto* context, auto* reply, auto done) {
      stub->async()->GetStatus(context, request.get(), reply, std::move(done));
    });
  }
  std::vector<absl::StatusOr<proto::Status>> statuses = AskAll(std::move(questions), timeout_);
  for (size_t i = 0; i < asked.size(); ++i) replies[asked[i]].status = std::move(statuses[i]);
  return replies;
}

absl::Status OtherDomains::End(const DomainInfo& domain, const proto::EndSessionsRequest& request) {
  const auto channel = ConnectLocally(domain.socket);
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
