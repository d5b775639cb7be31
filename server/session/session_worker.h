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
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/quota.h"
#include "proto/mutex.h"
#include "proto/ring_abi.h"
#include "server/session/long_replies.h"
#include "server/session/reply.h"
#include "server/session/session_config.h"

namespace detshare {

class Session;
class SessionDriver;
struct ServerOptions;
struct SessionLimits;
class ThreadScheduling;

// The room that the payload of a control call takes, of the session's and of the tenant's.
struct CallRoom {
  QuotaCharge session, tenant;
};

// A control call over gRPC. Either `done` is called, exactly once, by the worker or by
// SessionWorker::Call(), or `read_rest`. `args` must stay valid until then.
struct ControlCall {
  uint16_t op = 0;
  uint32_t device = 0;
  ContextId context = 0;
  uint64_t after = 0;  // runs once the ring is read up to this position
  std::span<const uint8_t> args;
  std::shared_ptr<const std::string> payload;
  CallRoom room;  // for the payload, if it came in parts
  Reply::CallDone done;
  // The part of the payload that the daemon has not read yet. When the call's turn comes, the worker
  // passes on room for it. The reader calls SessionWorker::Call() again with the whole payload, or
  // drops the room. Null: the payload is here.
  uint64_t rest_bytes = 0;
  std::function<void(CallRoom room)> read_rest;
};

class SessionWorker {
 public:
  // Called on the worker's thread.
  struct Events {
    // Once. `status` says whether the session was opened; `file_bytes` is the size of the session
    // file.
    std::function<void(const absl::Status& status, uint64_t file_bytes)> opened;
    // May be null. At most once, before the client learns of the session's end: work of the session
    // runs on.
    std::function<void()> runs_on;
    // Once, unless the session was refused. The client gets no more replies; its later calls return
    // `result`, a CUresult.
    std::function<void(int result, const std::string& reason)> ended;
    // May be null. False: the session may have work on its devices. True: it is known to have none.
    // The values alternate, first false, last true.
    std::function<void(bool calm)> calm;
    // May be null. Once, when the tenant's limit first refuses something.
    std::function<void(const std::string& why)> limited;
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
  std::optional<LongReplies::Taken> TakeReply(uint32_t slot);
  // Any thread. Counts replies that are not sent yet (LongReplies::quota); null before the session is
  // open and after it is gone.
  std::shared_ptr<Quota> replies() const;

  const SessionConfig& config() const { return config_; }
  const SessionLimits& limits() const;
  // The rest: any thread.
  State state() const { return state_.load(std::memory_order_acquire); }
  // How long the session's work has run on since the session's end; 0: none does.
  std::chrono::nanoseconds runs_on_for() const;
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
  void Loop(SessionDriver& driver, ThreadScheduling& scheduling);
  struct Done {
    bool client = false;     // handled records or calls
    bool tasks = false;      // ran tasks
    bool throttled = false;  // a record is ready that may not be read yet
    bool full = false;       // a record is ready, and the queued work takes too much memory
    bool collects = false;   // records are ready, and are collected (submission_coalescing.h)
  };
  // Handles whatever is ready, once, and returns what it did.
  Done Round(SessionDriver& driver);
  // Gives the session's file more of its memory. Returns false if there is none: the session ends.
  bool AllocateMore(Session& session);
  struct Pauses;
  // After a round that found nothing to do: polls once or sleeps, or does what waits for a pause.
  void Pause(SessionDriver& driver, const Done& done, Pauses& pauses);
  // Returns how long the worker may sleep if nobody wakes it.
  std::chrono::nanoseconds LongestSleep(SessionDriver& driver,
                                        std::chrono::steady_clock::time_point now,
                                        Pauses& pauses) const;
  // `beside_client`: on the CPU of the client. `prompt`: as in ThreadScheduling::SetPrompt().
  void Sleep(Session& session, std::chrono::nanoseconds longest, bool beside_client, bool prompt,
             Pauses& pauses);
  // Waits for End(), which another thread is expected to call. Returns false if it does not, for long.
  bool AwaitStop() const;
  void SetCalm(bool calm);
  // Gives free memory of this process back to the system, if the session had much of it.
  void ReturnMemory(SessionDriver& driver);
  // Returns whether the session's memory is in place, so that operations may run.
  bool AttendToSwap(SessionDriver& driver);
  // Returns whether a call was executed.
  bool RunDueCalls(SessionDriver& driver);
  // Takes room for the rest of a call's payload. Nothing: there is none at present.
  std::optional<CallRoom> RoomFor(const ControlCall& call);
  void RejectCalls(int result);

  const SessionConfig config_;
  const std::unique_ptr<const ServerOptions> options_;
  Events events_;
  std::thread thread_;
  // When the session began to end; 0: it has not. Relaxed: an observer may learn it late.
  std::atomic<int64_t> runs_on_since_ns_{0};
  bool calm_ = true;    // the last state reported to Events::calm; the worker's thread only
  bool polls_ = false;  // between records, at the latest pause; the worker's thread only
  // Whether a call waits for room, which does not wake the worker; the worker's thread only.
  bool call_waits_ = false;
  const std::shared_ptr<Quota> payloads_;  // of the calls that are being read

  std::atomic<State> state_{State::kOpening};
  std::atomic<int> sticky_error_{0};
  std::atomic<bool> faulted_{false};  // release: publishes sticky_error_
  // Release: publishes to the worker that End() was called. The worker reads it without the lock.
  std::atomic<bool> stop_{false};
  // Whether calls_ is not empty, and whether a call was added since the worker last looked.
  // Release: publish an addition to the worker.
  std::atomic<bool> has_calls_{false};
  std::atomic<bool> new_calls_{false};

  mutable Mutex mutex_;
  int end_result_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string end_reason_ ABSL_GUARDED_BY(mutex_);
  bool end_violation_ ABSL_GUARDED_BY(mutex_) = false;
  bool rejecting_ ABSL_GUARDED_BY(mutex_) = false;  // Call() rejects calls at once
  std::vector<ControlCall> calls_ ABSL_GUARDED_BY(mutex_);
  // The worker sets and clears it under mutex_. Only the worker may use it without the lock.
  std::unique_ptr<SessionDriver> driver_;
  SessionCounters last_counters_ ABSL_GUARDED_BY(mutex_);  // the counters of a session that is gone
};

}  // namespace detshare
