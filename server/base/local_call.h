// Calls daemons of this host at their sockets.
//
// gRPC's timers are off in the daemon (proto/quiet_grpc.h). So the caller waits in AskAll() for its
// own timeout, and then cancels the calls without a reply.
//
// The thread that runs gRPC's callbacks belongs to the channels: the last one ends it and waits for
// its end. So that thread must never own a channel, a stub or a context (gRPC 1.51 would use the
// thread's queue after it is gone). AskAll() keeps them until each call is over.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
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

// A function that starts a call by an asynchronous stub and returns. What it refers to must live
// until AskAll() returns.
template <typename Reply>
using Question = std::function<void(grpc::ClientContext* context, Reply* reply,
                                    std::function<void(grpc::Status)> done)>;

// Starts all calls at once and waits until each has a reply or its time in `timeouts` is over. A
// call without a reply by then is DeadlineExceeded: it is cancelled, which needs nothing from its
// daemon. The replies have the order of the questions. Any thread may call it, except in a callback
// of gRPC.
template <typename Reply>
std::vector<absl::StatusOr<Reply>> AskAll(const std::vector<Question<Reply>>& questions,
                                          const std::vector<std::chrono::milliseconds>& timeouts) {
  struct Call {
    grpc::ClientContext context;
    Reply reply;
    std::optional<grpc::Status> status;  // guarded by `mutex`
  };
  std::vector<Call> calls(questions.size());
  Mutex mutex;
  CondVar changed;
  size_t left = questions.size();  // guarded by `mutex`
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < calls.size(); ++i) {
    questions[i](&calls[i].context, &calls[i].reply, [&, i](grpc::Status status) {
      const MutexLock lock(&mutex);
      calls[i].status = std::move(status);
      --left;
      changed.SignalAll();
    });
  }
  const auto over = [&] { return left == 0; };
  MutexLock lock(&mutex);
  for (;;) {
    auto end = begin;  // of the longest wait for a reply that has not come
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!calls[i].status.has_value()) end = std::max(end, begin + timeouts[i]);
    }
    if (std::chrono::steady_clock::now() >= end) break;
    changed.WaitUntil(&mutex, end);
  }
  std::vector<absl::StatusOr<Reply>> replies;
  for (Call& call : calls) {
    if (!call.status.has_value()) {
      replies.emplace_back(absl::DeadlineExceededError("no reply in time"));
    } else if (call.status->ok()) {
      replies.emplace_back(std::move(call.reply));
    } else {
      // Codes of both types have the same numbers.
      replies.emplace_back(absl::Status(static_cast<absl::StatusCode>(call.status->error_code()),
                                        call.status->error_message()));
    }
  }
  lock.Unlock();
  // Does nothing to a call that is over.
  for (Call& call : calls) call.context.TryCancel();
  lock.Lock();
  changed.Wait(&mutex, over);
  return replies;
}

// The same, with one timeout for all calls.
template <typename Reply>
std::vector<absl::StatusOr<Reply>> AskAll(const std::vector<Question<Reply>>& questions,
                                          std::chrono::milliseconds timeout) {
  return AskAll(questions, std::vector<std::chrono::milliseconds>(questions.size(), timeout));
}

}  // namespace detshare
