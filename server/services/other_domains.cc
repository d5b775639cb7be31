#include "server/services/other_domains.h"

#include <memory>
#include <utility>

#include "server/base/local_call.h"

namespace detshare {

OtherDomains::OtherDomains(std::string own_directory, std::chrono::milliseconds patience)
    : own_directory_(std::move(own_directory)), patience_(patience) {
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
    if (jobs_.size() >= kMostWaiting) return false;
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

std::vector<OtherDomains::Answer> OtherDomains::Ask() {
  const auto request = std::make_shared<proto::GetStatusRequest>();
  std::vector<Answer> answers;
  std::vector<size_t> asked;
  std::vector<Question<proto::Status>> questions;
  for (DomainInfo& domain : DomainsBeside(own_directory_)) {
    if (domain.socket == DomainSocket(own_directory_)) continue;
    const auto channel = ConnectLocally(domain.socket);
    answers.push_back({std::move(domain),
                       channel.ok() ? absl::UnavailableError("not asked yet") : channel.status()});
    if (!channel.ok()) continue;
    asked.push_back(answers.size() - 1);
    const std::shared_ptr<proto::Admin::Stub> stub = proto::Admin::NewStub(*channel);
    questions.push_back([request, stub](auto* context, auto* reply, auto done) {
      stub->async()->GetStatus(context, request.get(), reply, std::move(done));
    });
  }
  std::vector<absl::StatusOr<proto::Status>> statuses = AskAll(std::move(questions), patience_);
  for (size_t i = 0; i < asked.size(); ++i) answers[asked[i]].status = std::move(statuses[i]);
  return answers;
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
  return AskAll<proto::EndedSessions>({question}, patience_)[0].status();
}

}  // namespace detshare
