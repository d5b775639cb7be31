// Calls to daemons of this host, at their sockets.
//
// gRPC's timers are off in the daemon (proto/quiet_grpc.h): whoever asks waits here, as long as it
// likes, and lets go of what has not answered by then.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace detshare {

// A channel over a connection that is there. Does not block: Unavailable at once when nobody
// listens, or many wait there already. A channel that was cut off stays so.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectLocally(const std::string& socket);

// Makes the call by an asynchronous stub and returns. It keeps its request and its stub until it is
// destroyed, which is when the call is over.
template <typename Reply>
using Question = std::function<void(grpc::ClientContext* context, Reply* reply,
                                    std::function<void(grpc::Status)> done)>;

// Asks all at once, and waits until each has answered or `timeout` is over: then it is
// DeadlineExceeded. The answers in the order of the questions. Any thread.
template <typename Reply>
std::vector<absl::StatusOr<Reply>> AskAll(std::vector<Question<Reply>> questions,
                                          std::chrono::milliseconds timeout) {
  struct Call {
    Question<Reply> question;
    grpc::ClientContext context;
    Reply reply;
    std::optional<grpc::Status> status;  // guarded by mutex
  };
  // Shared with gRPC, which may answer when nobody waits any more.
  struct Round {
    std::vector<std::unique_ptr<Call>> calls;
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = 0;  // guarded by mutex
  };
  const auto round = std::make_shared<Round>();
  round->left = questions.size();
  for (Question<Reply>& question : questions) {
    round->calls.push_back(std::make_unique<Call>());
    round->calls.back()->question = std::move(question);
  }
  for (const std::unique_ptr<Call>& call : round->calls) {
    call->question(&call->context, &call->reply, [round, one = call.get()](grpc::Status status) {
      const std::lock_guard<std::mutex> lock(round->mutex);
      one->status = std::move(status);
      if (--round->left == 0) round->changed.notify_all();
    });
  }
  std::vector<absl::StatusOr<Reply>> replies;
  std::unique_lock<std::mutex> lock(round->mutex);
  round->changed.wait_for(lock, timeout, [&] { return round->left == 0; });
  std::vector<Call*> silent;
  for (const std::unique_ptr<Call>& call : round->calls) {
    if (!call->status.has_value()) {
      silent.push_back(call.get());
      replies.emplace_back(absl::DeadlineExceededError("no reply in time"));
    } else if (call->status->ok()) {
      replies.emplace_back(std::move(call->reply));
    } else {
      // The codes have the same numbers.
      replies.emplace_back(absl::Status(static_cast<absl::StatusCode>(call->status->error_code()),
                                        call->status->error_message()));
    }
  }
  lock.unlock();
  for (Call* const call : silent) call->context.TryCancel();
  return replies;
}

}  // namespace detshare
