// What a session's worker does with it: reads on when the schedulers allow it, hands operations to
// the handlers, watches the work, and takes the session down.
//
// Threading: the session's worker (session_worker.h); what says "any thread" excepted.
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
#include "server/session/reply.h"
#include "server/session/session.h"
#include "server/session/session_config.h"
#include "server/shared_memory/ring_reader.h"

namespace detshare {

class SessionSwap;

class SessionDriver {
 public:
  // Opens the session and makes it known to the schedulers and brokers of its devices. `options`
  // outlives the driver.
  static absl::StatusOr<std::unique_ptr<SessionDriver>> Open(const SessionConfig& config,
                                                             const ServerOptions& options);
  // Waits for what the GPU still does (call Abandon() first to shorten that) and gives everything
  // back.
  ~SessionDriver();
  SessionDriver(const SessionDriver&) = delete;
  SessionDriver& operator=(const SessionDriver&) = delete;

  Session& session() { return *session_; }
  SessionSwap& swap() { return *swap_; }
  SessionCounters counters() const;                  // any thread
  std::vector<SessionDeviceUse> device_use() const;  // any thread

  // ---- the schedulers

  // Whether the next record may be read, as far as the schedulers are concerned.
  bool MayRun() {
    std::vector<SessionDevice>& devices = session_->devices();
    if (devices.size() == 1) [[likely]]
      return devices[0].coroutine->MayRun();
    const size_t next = session_->reader().NextDevice();
    return next >= devices.size() || devices[next].coroutine->MayRun();
  }
  // A record is there that may not be read. True when it was held for so long that it may.
  bool Throttle();
  // Sees how far the work is. `pause`: no record has come for some time.
  void WatchWork(bool pause);
  // Whether work is under way whose end WatchWork() is to see, and whether others wait for that.
  bool watching_work() const;
  bool others_throttled() const;
  // Somebody waits for each result of the session.
  bool awaited() const;
  // Prepares one thing that would hold up a launch later. False: there is none.
  bool MakeReady();

  // ---- operations

  // Executes one record of the ring, or one control call. What breaks the protocol ends up in
  // Session::violation().
  void HandleRecord(const RingRecord& record);
  void HandleCall(uint16_t op, uint32_t device, ContextId context, std::span<const uint8_t> args,
                  std::shared_ptr<const std::string> payload, Reply::CallDone done);
  // Watches for the end of everything that was submitted so far. Not while watching_idle().
  void WatchIdle();
  bool watching_idle() const { return idle_watch_ != 0; }

  // ---- the end

  // Looks for a fault of the session's work and makes it the session's error. Cheap when there is
  // none.
  void CheckFault();
  // Whether the session's error came from the device.
  bool faulted() const { return faulted_; }
  // Queued work may be dropped.
  void Abandon();
  // Session::Close() and Abandon() at once, from any thread: ends what the worker may be waiting
  // for in the middle of an operation.
  void Interrupt(int result);

 private:
  explicit SessionDriver(std::unique_ptr<Session> session);
  void Execute(Transport transport, uint16_t op, uint32_t device, ContextId context,
               std::span<const uint8_t> args, std::span<const uint8_t> payload, Reply& reply);
  void WaitForDevices();
  Task<void> AwaitIdle(int* busy);

  // Ends after the session, whose tasks may hold tickets of it.
  std::unique_ptr<SessionSwap> swap_;
  std::unique_ptr<Session> session_;
  bool faulted_ = false;
  bool abandoned_ = false;
  int idle_watch_ = 0;  // 1 while a task watches
};

}  // namespace detshare
