#include "server/watchdog.h"

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "proto/control.grpc.pb.h"
#include "server/base/local_call.h"
#include "server/base/logging.h"

namespace detshare {

absl::Status AskDaemon(const std::string& socket, std::chrono::milliseconds timeout) {
  DETSHARE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, ConnectLocally(socket));
  const proto::TakeReplyRequest request;  // names no session, so the daemon does nothing
  const std::unique_ptr<proto::Control::Stub> stub = proto::Control::NewStub(channel);
  const Question<proto::LongReply> question = [&](auto* context, auto* reply, auto done) {
    stub->async()->TakeReply(context, &request, reply, std::move(done));
  };
  const absl::Status body = AskAll<proto::LongReply>({question}, timeout)[0].status();
  // NotFound is the reply: there is no such session.
  if (absl::IsNotFound(body)) return absl::OkStatus();
  if (absl::IsDeadlineExceeded(body)) {
    return absl::DeadlineExceededError(
        absl::StrCat("no reply from ", socket, " for ", timeout.count(), " ms"));
  }
  return absl::UnavailableError(
      absl::StrCat("an unexpected reply from ", socket, ": ", std::string(body.message())));
}

Watchdog::Watchdog(std::chrono::milliseconds period, std::function<absl::Status()> check,
                   std::function<void()> feed)
    : period_(period), check_(std::move(check)), feed_(std::move(feed)) {
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void Watchdog::Run() {
  for (;;) {
    const absl::Status health = check_();
    if (health.ok()) {
      feed_();
    } else {
      LogError("the daemon does not serve, so it does not feed the watchdog: ",
               std::string(health.message()));
    }
    MutexLock lock(&mutex_);
    if (changed_.WaitFor(&mutex_, period_,
                         [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; }))
      return;
  }
}

}  // namespace detshare
