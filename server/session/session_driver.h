// Drives a session for its worker: asks the schedulers whether the next record may be read, passes
// operations to the handlers, watches the GPU work, and ends the session.
//
// Threading: the session's worker (session_worker.h), except functions marked "any thread".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/task.h"
#include "proto/driver_api/row.h"
#include "server/session/backlog.h"
#include "server/session/reply.h"
#include "server/session/session.h"
#include "server/session/session_config.h"
#include "server/session/submission_coalescing.h"
#include "server/shared_memory/ring_reader.h"

namespace detshare {

class SessionSwap;

class SessionDriver : private CallWait {
 public:
  // Opens the session and adds it to the schedulers and memory brokers of its devices. `options`
  // must outlive the driver.
  static absl::StatusOr<std::unique_ptr<SessionDriver>> Open(const SessionConfig& config,
                                                             const ServerOptions& options);
  // Waits for the session's work on the GPU and releases everything. Call Abandon() first to
  // shorten the wait.
  ~SessionDriver() override;
  SessionDriver(const SessionDriver&) = delete;
  SessionDriver& operator=(const SessionDriver&) = delete;

  Session& session() { return *session_; }
  SessionSwap& swap() { return *swap_; }
  SessionCounters counters() const;                  // any thread
  std::vector<SessionDeviceUse> device_use() const;  // any thread

  // ---- the schedulers

  // Whether work of the session is queued or running on its devices. Does not wait.
  bool HasWork() const;
  // Whether the schedulers allow the worker to read the next record.
  bool MayRun() {
    std::vector<SessionDevice>& devices = session_->devices();
    if (devices.size() == 1) [[likely]]
      return devices[0].coroutine->MayRun();
    const size_t next = session_->reader().NextDevice();
    return next >= devices.size() || devices[next].coroutine->MayRun();
  }
  // Whether the memory that the session's queued work takes lets the worker read more records.
  bool HasRoom();
  Backlog& backlog() { return backlog_; }
  // Call when a record is ready and MayRun() is false. Returns true when the record was throttled
  // for so long that the worker may read it.
  bool Throttle();
  // Whether the worker should leave its records in the ring for the moment (submission_coalescing.h).
  // `awaited`: the client waits for something else of the worker.
  bool CollectsRecords(bool awaited);
  // The worker reads its records at once from here on.
  void EndCollection();
  // Checks how much of the submitted work is complete. `pause`: no record has come for some time.
  void WatchWork(bool pause);
  // Whether the devices wake the worker when work of the session writes a fence or faults.
  bool announced() const { return announced_; }
  // Whether WatchWork() must still see the end of submitted work.
  bool watching_work() const;
  // Whether an entity on one of the session's devices is throttled and so may wait for this
  // session's work to end.
  bool others_throttled() const;
  // Whether the client waits for each result of the session.
  bool awaited() const;
  // Does one piece of preparation that would delay a launch later. Returns false when there is none
  // left.
  bool MakeReady();

  // ---- operations

  // Execute one record of the ring, or one control call. A breach of the protocol is recorded in
  // Session::violation().
  void HandleRecord(const RingRecord& record);
  void HandleCall(uint16_t op, uint32_t device, ContextId context, std::span<const uint8_t> args,
                  std::shared_ptr<const std::string> payload, Reply::CallDone done);
  // Starts a watch that ends when all work submitted so far is complete. Do not call while
  // watching_idle().
  void WatchIdle();
  bool watching_idle() const { return idle_watch_ != 0; }

  // ---- the end

  // Makes a fault of the session's GPU work the session's sticky error. Cheap when there is no
  // fault.
  void CheckFault();
  // Whether the sticky error is a fault that CheckFault() found on a device.
  bool faulted() const { return faulted_; }
  // Allows the devices to drop queued work.
  void Abandon();
  // Any thread. Publishes `result` and the closed flag to the client, and lets the devices drop
  // queued work. This ends a wait of the worker in the middle of an operation.
  void Interrupt(int result);

 private:
  explicit SessionDriver(std::unique_ptr<Session> session);
  void Suspend() override;
  bool Resume() override;
  void Execute(Transport transport, uint16_t op, uint32_t device, ContextId context,
               std::span<const uint8_t> args, std::span<const uint8_t> payload, Reply& reply);
  bool Collects(bool awaited);
  // Counts the collection that was under way since then, if it has ended. 0: there was none.
  void CountCollection(policy::Nanoseconds since);
  void WaitForDevices();
  Task<void> AwaitIdle(int* busy);

  // Destroyed after the session, because the session's tasks may hold tickets of the swap.
  std::unique_ptr<SessionSwap> swap_;
  std::unique_ptr<Session> session_;
  Backlog backlog_;
  SubmissionCoalescing coalescing_;
  bool announced_ = true;
  bool faulted_ = false;
  bool abandoned_ = false;
  int idle_watch_ = 0;  // 1 while a task watches
};

}  // namespace detshare
