// The thread of one session: reads its ring, runs its control calls and its coroutines, and takes it
// down in the end.
//
//     opening --> running --> ending --> finished
//        |           client gone, closed, broke the protocol; daemon ends
//        +--(refused)---------------------^
//
// Everything of the session is touched by this thread only, so a session that waits for its GPU
// work at its end holds up nobody.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/ring_abi.h"
#include "server/session/reply.h"
#include "server/session/session_config.h"

namespace detshare {

class SessionDriver;
struct ServerOptions;

// One control call. `args` stays valid until `done` is called, exactly once.
struct ControlCall {
  uint16_t op = 0;
  uint32_t device = 0;
  ContextId context = 0;
  uint64_t after = 0;  // position of the ring that comes before it
  std::span<const uint8_t> args;
  std::shared_ptr<const std::string> payload;
  Reply::CallDone done;
};

class SessionWorker {
 public:
  // Called on the worker's thread.
  struct Events {
    // Once. `file_bytes`: of the session file.
    std::function<void(const absl::Status& status, uint64_t file_bytes)> opened;
    // Once, unless it was refused: nothing of the client's is answered any more. `result` is its
    // calls' CUresult from now on.
    std::function<void(int result, const std::string& reason)> ended;
    // May be null. First with false: the session may have work on its devices; with true: it has
    // none, and is known to have none. Turn by turn, last with true.
    std::function<void(bool calm)> calm;
    // May be null. Once, when the session's work had a fault or met another error that stays.
    std::function<void(int result)> faulted;
    // Once, last: everything is given back, the thread can be joined.
    std::function<void()> finished;
  };
  enum class State : int { kOpening, kRunning, kFaulted, kEnding, kFinished };

  SessionWorker(SessionConfig config, const ServerOptions& options, Events events);
  // Joins the thread: after `finished`, or else End() was called.
  ~SessionWorker();

  void Start();
  // Any thread. The first reason counts. `violation`: it is the client's fault, and an error in the
  // log.
  void End(int result, const std::string& reason, bool violation = false);
  // Any thread.
  void Call(ControlCall call);

  const SessionConfig& config() const { return config_; }
  // Any thread.
  State state() const { return state_.load(std::memory_order_acquire); }
  SessionCounters counters() const;
  // Nothing while there is no session, or none any more.
  std::vector<SessionDeviceUse> device_use() const;
  // The session's work had a fault on some device, and which CUresult that is.
  bool faulted() const { return faulted_.load(std::memory_order_acquire); }
  int sticky_error() const { return sticky_error_.load(std::memory_order_relaxed); }
  // Its client broke the protocol. From `ended` on.
  bool violated() const;

 private:
  void Run();
  void Loop(SessionDriver& driver);
  // One round of everything that may be ready; what there was.
  struct Done {
    bool client = false;  // records or calls
    bool tasks = false;
    bool throttled = false;  // there is a record that may not be read yet
  };
  Done Round(SessionDriver& driver);
  void SetCalm(bool calm);
  // Whether the session may do something.
  bool AttendToSwap(SessionDriver& driver);
  // Whether there was one.
  bool RunDueCalls(SessionDriver& driver);
  void RejectCalls(int result);

  const SessionConfig config_;
  const std::unique_ptr<const ServerOptions> options_;
  Events events_;
  std::thread thread_;
  bool calm_ = true;  // of the worker

  std::atomic<State> state_{State::kOpening};
  std::atomic<int> sticky_error_{0};
  std::atomic<bool> faulted_{false};  // release: publishes sticky_error_
  // Release-stored after the reason below; the worker looks at it without the lock.
  std::atomic<bool> stop_{false};
  // Whether calls_ is not empty, and whether one was added since the worker looked. Release-stored
  // after the addition.
  std::atomic<bool> has_calls_{false};
  std::atomic<bool> new_calls_{false};

  mutable std::mutex mutex_;
  int end_result_ = 0;              // guarded by mutex_
  std::string end_reason_;          // guarded by mutex_
  bool end_violation_ = false;      // guarded by mutex_
  bool rejecting_ = false;          // guarded by mutex_: calls are answered at once
  std::vector<ControlCall> calls_;  // guarded by mutex_
  // Set and cleared under mutex_ by the worker, which alone uses it without.
  std::unique_ptr<SessionDriver> driver_;
  SessionCounters last_counters_;  // guarded by mutex_: of the session that is gone
};

}  // namespace detshare
