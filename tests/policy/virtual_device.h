// A device in virtual time. It carries out a policy's decisions operation by operation, by the
// rules in policy/policy.h.
//
// The hardware runs the operations of one coroutine one after the other. A running operation keeps
// its SMs until it ends. SMs that become free go to the operation that was given first among those
// that could run there, so operations in flight go before later ones. An operation of `work` takes
// that long on the whole device, and proportionally longer on fewer SMs.
//
// With DeviceShape::preemption every coroutine preempts that is not bound to the ordinary
// time-slice group. Operations that a coroutine gives while its grant is urgent run on the whole
// device and stop all others (tools/sim/group_switches.h). The others keep their SMs and go on
// afterwards. Without preemption running operations are never stopped.
//
// Operations of an exclusive tenant must never run beside those of another tenant. The device
// throws std::logic_error if they do.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "policy/policy.h"
#include "tools/sim/group_switches.h"

namespace detshare::policy {

// Operations that a program gives at once, each by its device time.
struct Burst {
  Nanoseconds at = 0;  // when it begins; later if the burst before it has not ended by then
  std::vector<Nanoseconds> operations;
};
// Returns the burst after the one that ended at `now` (0 at first). Returns a burst without
// operations if there are no more.
using Program = std::function<Burst(Nanoseconds now)>;

class VirtualDevice {
 public:
  VirtualDevice(const DeviceShape& device, std::vector<SmRange> partitions,
                std::unique_ptr<Policy> policy);
  // Uses the standard pool.
  VirtualDevice(const DeviceShape& device, std::unique_ptr<Policy> policy);

  // Called before Run(). Returns the coroutine's index.
  size_t Open(Tenant tenant, Program program);
  // Binds a coroutine to a time-slice group. Called before Run().
  void BindToOrdinary(size_t index) { coroutines_[index].view.preempts = false; }
  void BindToUrgent(size_t index) { coroutines_[index].view.always_preempts = true; }
  void Run(Nanoseconds until);

  struct Coroutine {
    std::vector<Nanoseconds> latencies;  // of ended bursts, from their time `at` on
    Nanoseconds device_time = 0;         // of ended operations
    Nanoseconds longest_throttle = 0;
    std::vector<std::pair<Nanoseconds, SmRange>> begun;  // the operations that began, by their
                                                         // device time
  };
  const Coroutine& operator[](size_t index) const { return coroutines_[index].result; }
  int decisions() const { return decisions_; }
  // The largest number of coroutines whose operations ran at the same time.
  int max_running() const { return max_running_; }
  Nanoseconds now() const { return now_; }

 private:
  struct Operation {
    Nanoseconds work = 0;
    SmRange range;
    double left = 0;
    uint64_t number = 0;  // its place in the order of giving
    int groups = 0;       // the number of groups of SMs that it has
    bool running = false;
    bool urgent = false;  // of the urgent time-slice group
  };
  struct State {
    Tenant tenant;
    Program program;
    CoroutineView view;
    Grant grant;
    Burst burst;
    size_t given = 0;  // the number of operations of the burst that were given
    std::deque<Operation> hardware;
    Nanoseconds budget = 0;
    Nanoseconds throttled_since = -1;
    bool disturbed = false;  // the burst began beside a long operation
    Nanoseconds total = 0, operations = 0, bursts = 0, gaps = 0, gap_total = 0;
    Nanoseconds idle_since = 0;
    // Whether it is counted in rooms_, and with which turn group.
    std::array<bool, 2> entered{};
    std::array<CoroutineId, 2> entered_as{};
    Coroutine result;
  };

  void Decide();
  void Arrive();
  // Gives the operations that may be given. Returns whether the policy must be asked.
  bool Give();
  bool Complete();
  void Occupy();
  // Enters the turn group of its grant, if no work of another group is in flight.
  bool Enter(State& state);
  void Leave(State& state);
  // Throws if operations run beside each other that must not.
  void CheckExclusive();
  // Gives the device to the time-slice group that gets the next turn.
  void TakeTurns();
  // From when on the group that has the device runs.
  Nanoseconds TurnBegin() const;
  // Whether the operation's group has the device, or gets it in the switch that is under way.
  bool HasTurn(const Operation& operation) const { return operation.urgent == switches_.urgent(); }
  Nanoseconds NextEvent() const;
  const Limits& LimitsOf(const State& state) const;
  // The end of the running burst's contention phase.
  static Nanoseconds ContentionEnd(const State& state);

  const DeviceShape device_;
  const std::vector<SmRange> partitions_;
  const std::unique_ptr<Policy> policy_;
  std::vector<Tenant> tenants_;
  std::vector<State> coroutines_;
  std::vector<size_t> started_;  // coroutines whose first operation runs, in the order of giving
  // For ordinary and for urgent operations, the owner of each group of SMs; -1: free.
  std::array<std::vector<int>, 2> owners_;
  // The turn group whose work is in flight, and the number of its coroutines with such work; for
  // ordinary and for urgent work.
  struct Room {
    CoroutineId group = 0;
    int coroutines = 0;
  };
  std::array<Room, 2> rooms_;
  sim::GroupSwitches switches_;
  Nanoseconds now_ = 0;
  Nanoseconds ask_again_at_ = kForever;
  int decisions_ = 0;
  int max_running_ = 0;
  uint64_t given_ = 0;  // the number of given operations
};

// Bursts of the same operations. The first begins at `at`, and each later one `period` after the
// one before, or at its end if it takes longer.
Program Periodic(Nanoseconds at, Nanoseconds period, std::vector<Nanoseconds> operations);
// Work without a gap: bursts of the same operations follow each other at once.
Program Steady(std::vector<Nanoseconds> operations);
// Bursts with exponential gaps between the end of one and the start of the next. `seed` determines
// the gaps.
Program Arrivals(Nanoseconds mean_gap, std::vector<Nanoseconds> operations, uint64_t seed);

// The `fraction` quantile; `fraction` is from 0 to 1. 0 if there are no values.
Nanoseconds Quantile(std::vector<Nanoseconds> values, double fraction);

}  // namespace detshare::policy
