// Lets the device memory of a session leave its cards while the session does nothing, and brings it
// back before it does something again.
//
//     in --(the broker's order; all work is complete)--> out --(a record or a call)--> in
//
// What crosses between threads is one flag: attention(), which others set. The rest happens on the
// session's thread, between its operations, and holds up this session only.
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

// The session's thread, except where it says otherwise. Ends after the session's tasks and spaces.
class SessionSwap {
 public:
  explicit SessionSwap(SessionDriver& driver) : driver_(driver) {}
  SessionSwap(const SessionSwap&) = delete;
  SessionSwap& operator=(const SessionSwap&) = delete;

  // From now on the memory of `device` takes part.
  void Add(MemoryBroker& broker, policy::TenantClass tenant_class, SessionDevice& device);

  // The session ends: nothing moves any more.
  void Leave();

  // Whether Attend() is to be called before anything else. Acquire: the order that is the reason.
  bool attention() const { return attention_.load(std::memory_order_acquire); }
  // Carries orders out, and brings memory back when the session is `wanted`: has something to do.
  // Returns whether it may do that now. Ends early when `stop` becomes true.
  bool Attend(bool wanted, const std::atomic<bool>& stop);

  // What the session does, when that changes.
  void SetWorking() {
    if (idle_) [[unlikely]]
      ChangeIdle(0);
  }
  void SetIdle(policy::Nanoseconds since) {
    if (!idle_) ChangeIdle(since);
  }

  // Any thread. Sums over the devices.
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
  // Waits until all work is complete, and no task is left but those that wait for room. `own`: a
  // ticket that no task waits for, or null.
  bool AwaitQuiet(const RoomTicket* own, const std::atomic<bool>& stop);
  void TakeBack(const std::atomic<bool>& stop);
  bool TakeBackOne(Part& part, const std::atomic<bool>& stop);

  SessionDriver& driver_;
  std::vector<Part> parts_;
  std::atomic<bool> attention_{false};
  bool idle_ = false;
  // Set when the work is complete for which an earlier AwaitQuiet waited in vain.
  std::shared_ptr<bool> quiet_;
};

}  // namespace detshare
