// Lets the sessions of one device have more memory together than the card has: who needs room
// stands in a line, and others are told to go.
//
//     Ask()  --> in the line --(policy: it is its turn, who must go)--> waits for the victims
//                    |                                                       |
//                    +--(room is there)----------> granted <---(all are gone)+
//                    +--(nobody can go)----------> refused    (what comes back waits on)
//
//     victim: nothing --(told)--> ordered() --Begin()--> moves --End()--> nothing
//                                     +--(does not begin for long)-----> nothing
//
// A victim carries its order out on its own thread, between its operations. The broker has no
// thread: it decides when somebody asks, ends an order or a ticket, and when somebody who waits
// calls Look(), since time passes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/host_store.h"
#include "coroutine_runtime/memory_mover.h"
#include "coroutine_runtime/memory_room.h"
#include "coroutine_runtime/swap_counters.h"
#include "policy/eviction.h"

namespace detshare {

// Any thread. Outlives its accounts and their tickets.
class MemoryBroker {
 public:
  class Account;

  // All outlive the broker. `store`: may be shared by devices.
  MemoryBroker(Device& device, HostStore& store, MemoryMover& mover, const Clock& clock,
               policy::EvictionParameters parameters = {})
      : device_(device), store_(store), mover_(mover), clock_(clock), parameters_(parameters) {}
  MemoryBroker(const MemoryBroker&) = delete;
  MemoryBroker& operator=(const MemoryBroker&) = delete;

  // A session begins. `attend`: called, with a lock held, when it has an order; any thread.
  std::unique_ptr<Account> Open(uint64_t session, policy::TenantClass tenant_class,
                                DeviceMemory& memory, std::function<void()> attend);

 private:
  class Ticket;

  // With mutex_ held.
  void Advance();
  void Resolve(Ticket& ticket, RoomTicket::State state);
  void WithdrawOldOrders(policy::Nanoseconds now);

  Device& device_;
  HostStore& store_;
  MemoryMover& mover_;
  const Clock& clock_;
  const policy::EvictionParameters parameters_;

  std::mutex mutex_;  // guards what follows
  std::vector<Account*> accounts_;
  std::vector<Ticket*> line_;  // those without a reply, in the order in which they came
  Ticket* granted_ = nullptr;
  policy::Nanoseconds looked_at_ = 0;
};

// One session on the device. Its owner's thread, except where it says otherwise. Ends after its
// tickets; before its memory, or some time after Leave(), when all of it has been given back.
class MemoryBroker::Account final : public RoomSource {
 public:
  using Counters = SwapCounters;

  ~Account() override;
  // The session ends: it takes no part any more, and others may count on its memory.
  void Leave();

  // For new memory.
  std::unique_ptr<RoomTicket> Ask(uint64_t bytes) override;
  // For all that is out, and `more`; or a part of it, when the host has no room for those who would
  // have to go for all. Is not refused.
  std::unique_ptr<RoomTicket> AskToReturn(uint64_t more);
  // Time has passed. Cheap when it was not much.
  void Look();
  // Tickets without a reply.
  int waiting() const { return waiting_.load(std::memory_order_relaxed); }

  // What the session does, for the policy.
  void SetWorking() { idle_since_.store(0, std::memory_order_relaxed); }
  void SetIdle(policy::Nanoseconds since) { idle_since_.store(since, std::memory_order_relaxed); }
  void SetBlocked(bool blocked) { blocked_.store(blocked, std::memory_order_relaxed); }

  // Whether it must let go of memory.
  bool ordered() const { return ordered_.load(std::memory_order_relaxed) != 0; }
  // The owner carries the order out now. The bytes, 0 when it was withdrawn.
  uint64_t Begin();
  // Moves out what Begin() said; nothing of the session is at work. Then End().
  absl::StatusOr<uint64_t> MoveOut(uint64_t bytes, const std::atomic<bool>& stop);
  // The order is carried out, or cannot be.
  void End(bool went);
  // Brings back what fits of what is out; the bytes. CUDA_ERROR_OUT_OF_MEMORY, when that is nothing:
  // ask for room.
  absl::StatusOr<uint64_t> MoveIn(const std::atomic<bool>& stop);

  // Any thread.
  Counters counters() const;

 private:
  friend class MemoryBroker;
  friend class Ticket;
  Account(MemoryBroker& broker, uint64_t session, policy::TenantClass tenant_class,
          DeviceMemory& memory, std::function<void()> attend)
      : broker_(broker),
        session_(session),
        tenant_class_(tenant_class),
        memory_(memory),
        attend_(std::move(attend)) {}
  // `part`: as RoomRequest's; 0: for new memory.
  std::unique_ptr<RoomTicket> Ask(uint64_t bytes, uint64_t part);

  MemoryBroker& broker_;
  const uint64_t session_;
  const policy::TenantClass tenant_class_;
  DeviceMemory& memory_;
  const std::function<void()> attend_;
  // Relaxed, all of them: the broker goes by them, and whoever moves memory looks for itself.
  std::atomic<policy::Nanoseconds> idle_since_{0};  // 0: it works
  std::atomic<bool> blocked_{false};
  std::atomic<int> waiting_{0};       // changed with the broker's lock
  std::atomic<uint64_t> ordered_{0};  // bytes; changed with the broker's lock
  std::atomic<uint64_t> bytes_out_{0}, bytes_in_{0}, moves_{0};
  std::atomic<int64_t> nanoseconds_{0};

  // Guarded by the broker's mutex.
  bool moving_ = false;
  bool leaving_ = false;
  policy::Nanoseconds ordered_at_ = 0;
  policy::Nanoseconds placed_at_ = policy::ResidentMemory::kNever;
  policy::Nanoseconds could_not_go_ = policy::ResidentMemory::kNever;
};

}  // namespace detshare
