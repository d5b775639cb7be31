// Policies: pure functions that decide, for one device, which coroutine goes first, how much of its
// work runs at a time, and on which SMs.
//
// A policy gets a snapshot of the device and returns a decision. It knows no clock, no device and
// no session object. So equal sequences of snapshots give equal sequences of decisions, in the
// daemon and in the simulator (tools/sim). Both carry out decisions by the same rules:
//
//   - A coroutine may give an operation to the hardware while its work in flight is less than the
//     window of its limits. So at most one operation beyond the window is in flight.
//   - A coroutine has its idle limits while no coroutine of a lower rank has work. It has its
//     contended limits while such a coroutine is in its contention phase (Grant::contention_phase).
//     It has its tail limits while such coroutines have work and all of them are past that phase.
//     The limits are looked up for every operation, without asking the policy.
//   - A coroutine that was throttled for longer than `max_throttle` may give one operation to the
//     hardware in any case. So no policy can starve a program, or stop two programs for ever when
//     one waits for the other.
//   - The contended limits of work that preempts also hold while a coroutine of a lower rank in
//     another engine has work that preempts (Snapshot::other_engines), for half of the time at most.
//   - Coroutines of different turn groups (Grant::turn_group) never have work in the hardware at
//     the same time. A coroutine waits until the work of other groups is complete, even after
//     `max_throttle`. Urgent work that preempts and all other work are apart: neither waits for the
//     other, because the hardware never runs both at once.
//   - An operation runs on the partition that its limits name. An operation that does not fit there
//     (a cooperative grid, a cluster, a graph with either) runs on the smallest partition of the
//     snapshot that holds it. The whole device holds every operation.
//   - A coroutine that is alone on its device has no window and no budget. Only the partitions of
//     its idle limits hold for it.
//   - Where coroutines take turns (Policy::TakesTurns), a coroutine that is alone is followed, too,
//     so that its work in flight is known when another one comes.
//   - The policy is asked when a coroutine comes or goes, when its work begins or ends, when a
//     setting changes, when a budget is used up, and at `ask_again_at`. While work begins and ends
//     thousands of times a second, the policy is asked about that up to 0.5 ms later, and does not
//     see each change. It is asked about changes in other engines up to 5 ms later.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace detshare::policy {

using CoroutineId = uint64_t;
// A duration, or a time on a clock that never goes back.
using Nanoseconds = int64_t;

inline constexpr Nanoseconds kForever = std::numeric_limits<Nanoseconds>::max();
inline constexpr Nanoseconds kMicrosecond = 1'000;
inline constexpr Nanoseconds kMillisecond = 1'000'000;
inline constexpr Nanoseconds kSecond = 1'000'000'000;

// SMs [first, first + count) of a device. count 0: the whole device.
struct SmRange {
  int first = 0;
  int count = 0;
  bool whole() const { return count == 0; }
  friend bool operator==(const SmRange&, const SmRange&) = default;
};

struct DeviceShape {
  int sm_count = 0;
  // Partitions consist of whole groups of this many SMs. SMs that fill no whole group belong to the
  // last group.
  int sm_group = 1;
  // The time after which urgent work (Grant::urgent) runs while other work fills the device; 0: the
  // device cannot stop running work.
  Nanoseconds preemption = 0;
  // At least 1.
  int groups() const { return sm_count / sm_group > 0 ? sm_count / sm_group : 1; }
  // The SMs of groups [begin, end).
  SmRange Groups(int begin, int end) const {
    const int first = begin * sm_group;
    return {first, (end == groups() ? sm_count : end * sm_group) - first};
  }
};

enum class TenantClass : uint8_t {
  kUnset,    // the policy may learn the class from the tenant's work
  kLatency,  // a user waits for each result
  kBatch,    // only the throughput counts
};

// An operator's settings for a tenant. 0 and kUnset: not set.
struct Tenant {
  std::string name;
  TenantClass tenant_class = TenantClass::kUnset;
  double weight = 1;                       // of its share, for policies with fair shares; above 0
  int sm_percent = 0;                      // a fixed share of the SMs
  int min_sms = 0, max_sms = 0;            // bounds of the partitions that it gets
  Nanoseconds slo_latency = 0;             // of a burst, from its first operation to its end
  Nanoseconds slo_ttft = 0, slo_tpot = 0;  // time to first token, time per output token
  bool exclusive = false;                  // its kernels never run beside those of other tenants
};

// A program's tokens, as far as its pattern of calls shows them. A burst that ends when the client
// reads a result counts as a token, once such bursts repeat. A burst that is much longer than the
// others is a prefill.
struct TokenView {
  uint64_t tokens = 0;          // 0: no such pattern was seen
  Nanoseconds last_at = 0;      // when the client read the latest token
  Nanoseconds recent_tpot = 0;  // mean time between the latest tokens
  Nanoseconds decode_work = 0;  // device time that a token takes without other work on the device
  Nanoseconds step_work = 0;    // device time that the running burst is likely to take in all
  bool prefill = false;         // the running burst is a prefill
  Nanoseconds prefill_since = 0;
};

// A coroutine, and what the scheduler has learned about it. Device time is the time that the work
// takes alone on the whole device.
struct CoroutineView {
  CoroutineId id = 0;
  // Programs that wait for each other's work, because they share events between processes, have the
  // same number here; 0: it waits for no other program.
  CoroutineId team = 0;
  const Tenant* tenant = nullptr;  // never null
  Nanoseconds opened_at = 0;

  // ---- its state at the time of the snapshot
  bool has_work = false;       // in its session's queues, or in the hardware
  Nanoseconds changed_at = 0;  // when has_work last changed
  Nanoseconds in_flight = 0;   // device time of its work in the hardware
  // When in_flight last became 0 or more than 0. Known only where coroutines take turns.
  Nanoseconds in_flight_since = 0;
  // When its present throttle began; 0: it is not throttled.
  Nanoseconds throttled_since = 0;
  // Whether its work stops the running work of others when a grant makes it urgent. False if the
  // device cannot do that, and for a program that is bound to the device's ordinary work.
  bool preempts = false;
  // Whether its work does so even when no grant makes it urgent, and is itself never stopped: the
  // program is bound to the device's urgent work.
  bool always_preempts = false;

  // ---- what it has done
  Nanoseconds device_time = 0;  // of all work that it has given to the hardware since it was opened
  Nanoseconds longest_operation = 0, typical_operation = 0;
  Nanoseconds typical_burst = 0;  // device time of a burst
  Nanoseconds typical_gap = 0;    // time without work between two bursts
  // The share of its device time in operations that are bound by memory and not by SMs: 0 to 1;
  // below 0: not known.
  double memory_bound = -1;
  TokenView tokens;
};

// Whether the work of a coroutine stops the work of others. `urgent`: as in its Grant.
inline bool StopsOthers(const CoroutineView& coroutine, bool urgent) {
  return coroutine.always_preempts || (urgent && coroutine.preempts);
}

// A coroutine of another engine on the same device, as that engine published it some milliseconds ago
// at most. That engine's policy, which is the same one, gives its grants. Ordinary work of several
// engines never runs at the same time, because engines take turns. Work that preempts stops the
// ordinary work of all engines.
struct OtherEngineView {
  CoroutineView coroutine;  // `tenant` has no name; `team` is 0
  // Of its grant.
  int rank = 0;
  bool urgent = false;
};

struct Snapshot {
  Nanoseconds now = 0;
  DeviceShape device;
  // The partitions on which operations can run. [0] is the whole device, as {0, 0}. The others are
  // those that Partitions() returned and those that every device keeps.
  absl::Span<const SmRange> partitions;
  absl::Span<const Tenant> tenants;            // all configured tenants, with or without sessions
  absl::Span<const CoroutineView> coroutines;  // in the order in which they were opened
  // In no order. They get no grants. Any of their values may be wrong, because another engine may be
  // compromised; no time is below 0 or above kForever / 2.
  absl::Span<const OtherEngineView> other_engines;
};

// Whether a coroutine of another engine restricts `coroutine`, whose grant has `rank` and `urgent`: both
// preempt, and the other one has a lower rank.
inline bool GoesFirst(const OtherEngineView& other, const CoroutineView& coroutine, int rank,
                      bool urgent) {
  return other.rank < rank && StopsOthers(other.coroutine, other.urgent) &&
         StopsOthers(coroutine, urgent);
}

// The index of `range` in `partitions`; 0, the whole device, if it is not among them.
inline int IndexOf(absl::Span<const SmRange> partitions, const SmRange& range) {
  for (size_t i = 0; i < partitions.size(); ++i) {
    if (partitions[i] == range) return static_cast<int>(i);
  }
  return 0;
}

// The limits of a coroutine. Partitions are indices into the snapshot's.
struct Limits {
  int partition = 0;       // for short operations and those of unknown length
  int long_partition = 0;  // for long operations
  // For long operations whose blocks take less than `yielding_block`: urgent work (Grant::urgent)
  // gets some of their SMs while they run.
  int yielding_partition = 0;
  Nanoseconds yielding_block = 0;
  // An operation is long if it delays urgent work that comes while it runs by at least this device
  // time. The delay is the operation's duration, unless its blocks are so short that blocks of
  // urgent work begin between them.
  Nanoseconds long_operation = kForever;
  Nanoseconds window = kForever;  // 0: no operation goes to the hardware
  Nanoseconds max_throttle = 100 * kMillisecond;
  friend bool operator==(const Limits&, const Limits&) = default;
};

inline constexpr int kRanks = 8;

// The rights of a coroutine until the next decision.
struct Grant {
  int rank = 0;  // 0 to kRanks - 1; a lower rank goes first
  // True: its work goes first in the hardware. If the coroutine preempts (CoroutineView::preempts),
  // its work runs on the whole device and stops the running work of all coroutines that are not
  // urgent. Otherwise blocks of its kernels begin before waiting blocks of other coroutines, where
  // the hardware can do that.
  bool urgent = false;
  Limits idle, contended;
  std::optional<Limits> tail;  // none: the contended limits
  // The contention phase of its bursts: the part of a burst, from its first operation on, in which
  // coroutines of higher ranks have their contended limits. 0 to 1, of the typical length of a
  // burst; 1: the whole burst, however long it takes. After that they have their tail limits,
  // because a burst that is nearly done loses little. A burst that begins beside a long operation
  // is slower already, so its contention phase lasts to its end. So does that of a burst that is
  // longer than usual.
  double contention_phase = 1;
  // The device time of work that the coroutine may give to the hardware. When it is used up, the
  // policy is asked, and the coroutine gives nothing more until the policy has decided.
  Nanoseconds budget = kForever;
  // The id of a coroutine of the group, so that groups of different policies are never confused; 0:
  // the group of all coroutines that may run beside each other.
  CoroutineId turn_group = 0;
  // Partitions where the coroutine is likely to run soon. The daemon makes its graphs ready there
  // ahead of time.
  absl::InlinedVector<int, 4> prepare;
  friend bool operator==(const Grant&, const Grant&) = default;
};

// The tail limits that hold: `tail`, or `contended` if the grant has none.
inline const Limits& TailLimits(const Grant& grant) {
  return grant.tail.has_value() ? *grant.tail : grant.contended;
}

// The end of the contention phase of a burst that began at `began`; kForever: it lasts to the
// burst's end. `contention_phase` is that of the Grant. `burst` is the device time that the burst
// has given to the hardware so far. A burst that is longer than usual, or the coroutine's first,
// has no known end. `disturbed`: a long operation of another coroutine was in the hardware when the
// burst began.
inline Nanoseconds ContentionPhaseEnd(double contention_phase, Nanoseconds began,
                                      Nanoseconds typical_burst, Nanoseconds burst,
                                      bool disturbed) {
  const bool usual = typical_burst > 0 && burst <= typical_burst + typical_burst / 4;
  if (contention_phase >= 1 || !usual || disturbed) return kForever;
  return began + static_cast<Nanoseconds>(static_cast<double>(typical_burst) * contention_phase);
}

struct Decision {
  std::vector<Grant> grants;  // grants[i] is for snapshot.coroutines[i]
  Nanoseconds ask_again_at = kForever;
};

struct Options {
  std::map<std::string, std::string> parameters;  // the policy's parameters, by name
};

// Threading: one thread at a time.
class Policy {
 public:
  virtual ~Policy() = default;
  // Whether the policy can serve these tenants; InvalidArgument with the reason if it cannot.
  // Called before Partitions() and Decide() get them.
  virtual absl::Status Check(absl::Span<const Tenant> tenants) const { return absl::OkStatus(); }
  // Whether decisions depend on what the coroutines do. If not, the scheduler learns nothing about
  // them, and asks the policy only when a coroutine comes or goes or a setting changes. The
  // decisions of such a policy may then name partitions, but no ranks, windows or budgets.
  virtual bool Watches() const { return true; }
  // Whether decisions name turn groups other than 0 while these tenants are configured. If so, the
  // scheduler follows all coroutines, whatever Watches() returns.
  virtual bool TakesTurns(absl::Span<const Tenant> tenants) const { return false; }
  // How long a turn of ordinary work lasts between engines of equal weight, within the bounds of the
  // device; 0: as long as the device likes.
  virtual Nanoseconds EngineTurn() const { return 0; }
  // The partitions that the policy wants to use, beside those that every device keeps. Making a
  // partition drains the device. So partitions are made when the daemon starts, and when the policy
  // or a tenant changes.
  virtual std::vector<SmRange> Partitions(const DeviceShape& device,
                                          absl::Span<const Tenant> tenants) const = 0;
  // `snapshot` is valid during the call.
  virtual Decision Decide(const Snapshot& snapshot) = 0;
};

}  // namespace detshare::policy
