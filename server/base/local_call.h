// Calls daemons of this host at their sockets.
//
// gRPC's timers are off in the daemon (proto/quiet_grpc.h). So the caller waits in AskAll() for its
// own timeout, and then gives up the calls without a reply.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/mutex.h"

namespace detshare {

// Returns a channel over a new connection. Does not block: returns Unavailable at once if no
// process listens or the queue of connections is full. A channel that loses its connection stays
// disconnected.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectLocally(const std::string& socket);

// A function that starts a call by an asynchronous stub and returns. It owns its request and its
// stub until it is destroyed, which happens when the call is over.
template <typename Reply>
using Question = std::function<void(grpc::ClientContext* context, Reply* reply,
                                    std::function<void(grpc::Status)> done)>;

// Starts all calls at once and waits until each has a reply or `timeout` is over. A call without a
// reply by then is DeadlineExceeded and is cancelled. The replies have the order of the questions.
// Any thread may call it.
template <typename Reply>
std::vector<absl::StatusOr<Reply>> AskAll(std::vector<Question<Reply>> questions,
                                          std::chrono::milliseconds timeout) {
  struct Call {
    Question<Reply> question;
    grpc::ClientContext context;
    Reply reply;
    std::optional<grpc::Status> status;  // guarded by Round::mutex
  };
  // gRPC shares this object, because a reply may come after the caller has given up.
  struct Round {
    std::vector<std::unique_ptr<Call>> calls;
    Mutex mutex;
    CondVar changed;
    size_t left ABSL_GUARDED_BY(mutex) = 0;
  };
  const auto round = std::make_shared<Round>();
  {
    const MutexLock lock(&round->mutex);
    round->left = questions.size();
  }
  for (Question<Reply>& question : questions) {
    round->calls.push_back(std::make_unique<Call>());
    round->calls.back()->question = std::move(question);
  }
  for (const std::unique_ptr<Call>& call : round->calls) {
    call->question(&call->context, &call->reply, [round, one = call.get()](grpc::Status status) {
      const MutexLock lock(&round->mutex);
      one->status = std::move(status);
      if (--round->left == 0) round->changed.SignalAll();
    });
  }
  std::vector<absl::StatusOr<Reply>> replies;
  MutexLock lock(&round->mutex);
  round->changed.WaitFor(&round->mutex, timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(round->mutex) {
    return round->left == 0;
  });
  std::vector<Call*> silent;
  for (const std::unique_ptr<Call>& call : round->calls) {
    if (!call->status.has_value()) {
      silent.push_back(call.get());
      replies.emplace_back(absl::DeadlineExceededError("no reply in time"));
    } else if (call->status->ok()) {
      replies.emplace_back(std::move(call->reply));
    } else {
      // Codes of both types have the same numbers.
      replies.emplace_back(absl::Status(static_cast<absl::StatusCode>(call->status->error_code()),
                                        call->status->error_message()));
    }
  }
  lock.Unlock();
  for (Call* const call : silent) call->context.TryCancel();
  return replies;
}

}  // namespace detshare
