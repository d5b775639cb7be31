// Evicts the device memory of a session while the session is idle, and brings it back before the
// session runs its next operation.
//
//     in --(the broker orders it; all work is complete)--> out --(a record or a call)--> in
//
// Other threads only set the flag attention(). Everything else happens on the session's thread,
// between its operations, and delays this session only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "coroutine_runtime/memory_broker.h"
#include "policy/policy.h"

namespace detshare {

class SessionDriver;
struct SessionDevice;

// Threading: the session's thread, except where stated. Destroyed after the session's tasks and
// address spaces.
class SessionSwap {
 public:
  explicit SessionSwap(SessionDriver& driver) : driver_(driver) {}
  SessionSwap(const SessionSwap&) = delete;
  SessionSwap& operator=(const SessionSwap&) = delete;

  // Lets the broker evict the session's memory on `device`.
  void Add(MemoryBroker& broker, policy::TenantClass tenant_class, SessionDevice& device);

  // Call when the session ends. No memory moves afterwards.
  void Leave();

  // Whether Attend() must be called before the next operation. Acquire: the broker's order is
  // visible to a caller that sees true.
  bool attention() const { return attention_.load(std::memory_order_acquire); }
  // Does what the broker ordered. `wanted`: the session has an operation to run, so evicted memory
  // is brought back. Returns whether operations may run. Returns early when `stop` becomes true.
  bool Attend(bool wanted, const std::atomic<bool>& stop);

  // Report to the brokers when the session becomes busy or idle. `since`: steady clock,
  // nanoseconds.
  void SetWorking() {
    if (idle_) [[unlikely]]
      ChangeIdle(0);
  }
  void SetIdle(policy::Nanoseconds since) {
    if (!idle_) ChangeIdle(since);
  }

  // Any thread. Returns the sums over the devices.
  MemoryBroker::Account::Counters counters() const;

 private:
  struct Part {
    SessionDevice* device = nullptr;
    std::unique_ptr<MemoryBroker::Account> account;
  };

  void ChangeIdle(policy::Nanoseconds since);
  bool out() const;
  void Obey(Part& part, const RoomTicket* own, const std::atomic<bool>& stop);
  void ObeyAll(const RoomTicket* own, const std::atomic<bool>& stop);
  // Waits until all work is complete and all remaining tasks wait for room. `own`: a ticket that no
  // task waits for, or null. Returns false after a timeout, at `stop` and when the session has an
  // error.
  bool AwaitCompletion(const RoomTicket* own, const std::atomic<bool>& stop);
  void TakeBack(const std::atomic<bool>& stop);
  bool TakeBackOne(Part& part, const std::atomic<bool>& stop);

  SessionDriver& driver_;
  std::vector<Part> parts_;
  std::atomic<bool> attention_{false};
  bool idle_ = false;
  // Becomes true when the work of the last AwaitCompletion() is complete. A call that timed out
  // leaves it false until then.
  std::shared_ptr<bool> complete_;
};

}  // namespace detshare
