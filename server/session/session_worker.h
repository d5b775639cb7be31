// The thread of one session. It reads the ring, runs the control calls and the coroutines, and ends
// the session.
//
//     opening --> running --> ending --> finished
//        |           client is gone, closes or breaks the protocol; daemon ends
//        +--(refused)---------------------^
//
// Only this thread touches the session's state. A session that waits for its GPU work while it ends
// therefore delays no other session.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
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

// A control call over gRPC. `done` is called exactly once, by the worker or by SessionWorker::Call().
// `args` must stay valid until then.
struct ControlCall {
  uint16_t op = 0;
  uint32_t device = 0;
  ContextId context = 0;
  uint64_t after = 0;  // runs once the ring is read up to this position
  std::span<const uint8_t> args;
  std::shared_ptr<const std::string> payload;
  Reply::CallDone done;
};

class SessionWorker {
 public:
  // Called on the worker's thread.
  struct Events {
    // Once. `status` says whether the session was opened; `file_bytes` is the size of the session
    // file.
    std::function<void(const absl::Status& status, uint64_t file_bytes)> opened;
    // Once, unless the session was refused. The client gets no more replies; its later calls return
    // `result`, a CUresult.
    std::function<void(int result, const std::string& reason)> ended;
    // May be null. False: the session may have work on its devices. True: it is known to have none.
    // The values alternate, first false, last true.
    std::function<void(bool calm)> calm;
    // May be null. Once, when the session gets a sticky error, such as a fault of its work.
    std::function<void(int result)> faulted;
    // Once, last: everything is released, and the thread can be joined.
    std::function<void()> finished;
  };
  enum class State : int { kOpening, kRunning, kFaulted, kEnding, kFinished };

  SessionWorker(SessionConfig config, const ServerOptions& options, Events events);
  // Joins the thread. Blocks until `finished` was called; call End() before.
  ~SessionWorker();

  void Start();
  // Any thread. Ends the session; the first call's reason counts. `result` is the CUresult of the
  // client's later calls. `violation`: the client broke the protocol, which the log shows as an
  // error.
  void End(int result, const std::string& reason, bool violation = false);
  // Any thread. Queues the call, or rejects it at once when the session ends or too many calls
  // wait.
  void Call(ControlCall call);
  // Any thread. Takes the reply to the client's record with that slot if it did not fit the slot.
  std::optional<std::string> TakeReply(uint32_t slot);

  const SessionConfig& config() const { return config_; }
  // The rest: any thread.
  State state() const { return state_.load(std::memory_order_acquire); }
  SessionCounters counters() const;
  // Empty before the session is open and after it is gone.
  std::vector<SessionDeviceUse> device_use() const;
  // Whether the session's work had a fault on a device. sticky_error() is then its CUresult.
  bool faulted() const { return faulted_.load(std::memory_order_acquire); }
  int sticky_error() const { return sticky_error_.load(std::memory_order_relaxed); }
  // Whether the session was ended because its client broke the protocol. Valid once Events::ended
  // was called.
  bool violated() const;

 private:
  void Run();
  void Loop(SessionDriver& driver);
  struct Done {
    bool client = false;     // handled records or calls
    bool tasks = false;      // ran tasks
    bool throttled = false;  // a record is ready that may not be read yet
  };
  // Handles whatever is ready, once, and returns what it did.
  Done Round(SessionDriver& driver);
  void SetCalm(bool calm);
  // Returns whether the session's memory is in place, so that operations may run.
  bool AttendToSwap(SessionDriver& driver);
  // Returns whether a call was due.
  bool RunDueCalls(SessionDriver& driver);
  void RejectCalls(int result);

  const SessionConfig config_;
  const std::unique_ptr<const ServerOptions> options_;
  Events events_;
  std::thread thread_;
  bool calm_ = true;  // the last state reported to Events::calm; the worker's thread only

  std::atomic<State> state_{State::kOpening};
  std::atomic<int> sticky_error_{0};
  std::atomic<bool> faulted_{false};  // release: publishes sticky_error_
  // Release: publishes to the worker that End() was called. The worker reads it without the lock.
  std::atomic<bool> stop_{false};
  // Whether calls_ is not empty, and whether a call was added since the worker last looked.
  // Release: publish an addition to the worker.
  std::atomic<bool> has_calls_{false};
  std::atomic<bool> new_calls_{false};

  mutable std::mutex mutex_;
  int end_result_ = 0;              // guarded by mutex_
  std::string end_reason_;          // guarded by mutex_
  bool end_violation_ = false;      // guarded by mutex_
  bool rejecting_ = false;          // guarded by mutex_: Call() rejects calls at once
  std::vector<ControlCall> calls_;  // guarded by mutex_
  // The worker sets and clears it under mutex_. Only the worker may use it without the lock.
  std::unique_ptr<SessionDriver> driver_;
  SessionCounters last_counters_;  // guarded by mutex_: the counters of a session that is gone
};

}  // namespace detshare
