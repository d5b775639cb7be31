// Lets the sessions of one device have more memory together than the card has. A session that needs
// room waits in a queue, and the broker orders other sessions to evict memory.
//
//     Ask() --> in the queue --(policy: its turn, and the victims)--> waits for the victims
//                    |                                                    |
//                    +--(there is room)---------> granted <--(all evicted)+
//                    +--(no session can evict)--> refused   (a request to return memory waits on)
//
//     victim: no order --(ordered)--> ordered() --Begin()--> moves --End()--> no order
//                                         +--(does not begin for long)-----> no order
//
// A victim carries out its order on its own thread, between its operations. The broker has no
// thread. It decides when a session asks, ends an order or ends a ticket. Since time also matters,
// waiting sessions call Look(), and the broker decides there, too.
//
// Where several processes share the device, each has a broker. They decide about the sessions and
// requests of all processes, which they show each other (room_board.h). A process whose words make
// no sense costs the others time and nothing else:
//
//   - A victim of another process that lets go neither of what is asked of it nor of
//     EvictionParameters::min_bytes in kForeignTimeout is left alone for a while.
//   - When its first request has waited for kForeignLimit, and a second for each GiB, a process counts on
//     no memory of others for a while, whatever they have let go.
//   - After kOvertakeTimeout behind requests of others, a process ignores them for kOvertakePeriod.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/host_store.h"
#include "coroutine_runtime/memory_mover.h"
#include "coroutine_runtime/memory_room.h"
#include "coroutine_runtime/room_board.h"
#include "coroutine_runtime/swap_counters.h"
#include "policy/eviction.h"
#include "proto/mutex.h"

namespace detshare {

// Threading: any thread. Lifetime: outlives its accounts and their tickets.
class MemoryBroker {
 public:
  class Account;

  // All arguments by reference outlive the broker. Devices may share `store`. `board` shows the other
  // processes on the device; null: there are none.
  MemoryBroker(Device& device, HostStore& store, MemoryMover& mover, const Clock& clock,
               policy::EvictionParameters parameters = {},
               std::unique_ptr<RoomBoard> board = nullptr)
      : device_(device),
        store_(store),
        mover_(mover),
        clock_(clock),
        parameters_(parameters),
        board_(std::move(board)) {}
  MemoryBroker(const MemoryBroker&) = delete;
  MemoryBroker& operator=(const MemoryBroker&) = delete;

  // A session begins. `attend` is called when the session gets an order, on any thread and with a
  // lock held.
  std::unique_ptr<Account> Open(uint64_t session, policy::TenantClass tenant_class,
                                DeviceMemory& memory, std::function<void()> attend);

  // Lets the broker act on the time that has passed, and on what other processes have published.
  // Cheap if it looked a moment ago.
  void Look();

 private:
  static constexpr policy::Nanoseconds kForeignTimeout = 5 * policy::kSecond;
  static constexpr policy::Nanoseconds kForeignLimit = 30 * policy::kSecond;
  static constexpr policy::Nanoseconds kOvertakeTimeout = 10 * policy::kSecond;
  static constexpr policy::Nanoseconds kOvertakePeriod = 60 * policy::kSecond;

  class Ticket;
  // A session of another process that is a victim.
  struct ForeignVictim {
    uint64_t session = 0;
    uint64_t movable = 0;  // all its memory that can leave the card
    uint64_t bytes = 0;    // what is asked of it
  };
  struct Awaited {
    // When it last had let go of enough, or became a victim; 0: it is none.
    policy::Nanoseconds since = 0;
    uint64_t movable = 0;  // its memory then
    uint64_t enough = 0;   // what it has to let go of in kForeignTimeout
    policy::Nanoseconds could_not_go = policy::ResidentMemory::kNever;
  };

  // Decides, and publishes what others must know.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Decide(policy::Nanoseconds now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish(policy::Nanoseconds now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  policy::ResidentMemory ResidentOf(const Account& account, policy::Nanoseconds now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a request of this process has waited too long behind those of others.
  bool Overtakes(policy::Nanoseconds now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a request of this process has waited too long while others had memory for it.
  bool LeavesOthersAlone(policy::Nanoseconds now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sessions of other processes must make room for a request of this one.
  void Await(const std::vector<ForeignVictim>& victims, policy::Nanoseconds now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Resolve(Ticket& ticket, RoomTicket::State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WithdrawOldOrders(policy::Nanoseconds now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Device& device_;
  HostStore& store_;
  MemoryMover& mover_;
  const Clock& clock_;
  const policy::EvictionParameters parameters_;
  const std::unique_ptr<RoomBoard> board_;

  Mutex mutex_;
  std::vector<Account*> accounts_ ABSL_GUARDED_BY(mutex_);
  std::vector<Ticket*> line_ ABSL_GUARDED_BY(mutex_);  // without a reply, in the order of arrival
  Ticket* granted_ ABSL_GUARDED_BY(mutex_) = nullptr;
  policy::Nanoseconds looked_at_ ABSL_GUARDED_BY(mutex_) = 0;
  policy::Nanoseconds woken_at_ ABSL_GUARDED_BY(mutex_) = 0;  // others, by this process
  policy::Nanoseconds overtakes_until_ ABSL_GUARDED_BY(mutex_) = 0;
  policy::Nanoseconds leaves_alone_until_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Awaited> awaited_ ABSL_GUARDED_BY(mutex_);  // by session
};

// One session on the device. Threading: the owner's thread, unless a method says otherwise.
// Lifetime: ends after its tickets. It ends before its memory, or some time after Leave() when all
// of the memory has been given back.
class MemoryBroker::Account final : public RoomSource {
 public:
  using Counters = SwapCounters;

  ~Account() override;
  // The session ends. It takes no further part, and others may count on its memory.
  void Leave();

  // Asks for room for new memory, in bytes.
  std::unique_ptr<RoomTicket> Ask(uint64_t bytes) override;
  // Asks for room for all evicted memory of the session plus `more` bytes. Asks for only a part of
  // it if the host has no room for the memory that others would have to evict. Is never refused.
  std::unique_ptr<RoomTicket> AskToReturn(uint64_t more);
  // As MemoryBroker::Look().
  void Look() { broker_.Look(); }
  // The number of tickets without a reply.
  int waiting() const { return waiting_.load(std::memory_order_relaxed); }

  // These report the session's activity to the policy.
  void SetWorking() { idle_since_.store(0, std::memory_order_relaxed); }
  void SetIdle(policy::Nanoseconds since) { idle_since_.store(since, std::memory_order_relaxed); }
  void SetBlocked(bool blocked) { blocked_.store(blocked, std::memory_order_relaxed); }

  // Whether the session has an order to evict memory.
  bool ordered() const { return ordered_.load(std::memory_order_relaxed) != 0; }
  // The owner begins to carry out the order. Returns the bytes to evict; 0 if the order was
  // withdrawn.
  uint64_t Begin();
  // Evicts the bytes that Begin() returned. No work of the session may be running. Call End()
  // afterwards.
  absl::StatusOr<uint64_t> MoveOut(uint64_t bytes, const std::atomic<bool>& stop);
  // The order is carried out (`went`) or cannot be.
  void End(bool went);
  // Brings back as much evicted memory as fits, and returns the bytes. Returns
  // CUDA_ERROR_OUT_OF_MEMORY if nothing fits; the session then asks for room.
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
  // `part` is RoomRequest's; 0 for new memory.
  std::unique_ptr<RoomTicket> Ask(uint64_t bytes, uint64_t part);

  MemoryBroker& broker_;
  const uint64_t session_;
  const policy::TenantClass tenant_class_;
  DeviceMemory& memory_;
  const std::function<void()> attend_;
  // All relaxed: the broker only estimates from them, and a session that moves memory checks for
  // itself.
  std::atomic<policy::Nanoseconds> idle_since_{0};  // 0 while it works
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
