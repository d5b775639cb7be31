// Who runs where, how much of it at a time, and who goes first: pure decisions about one device.
//
// A policy sees a snapshot and answers with a decision. It knows no clock, no device and no session
// object: the same sequence of snapshots gives the same sequence of decisions, in the daemon and in
// the simulator (tools/sim), which both carry the answers out by the same rules:
//
//   - An operation is given to the hardware while its coroutine's work in flight is less than the
//     window of its terms. So there is at most one operation more in flight than the window says.
//   - The terms are `quiet` while no coroutine of a lower rank has work, `pressed` while one of
//     those that have is in the pressing part of its burst (Grant::pressing), else `closing`. That
//     is looked up for every operation, without asking the policy.
//   - Whoever was held for longer than `longest_hold` may give one operation to the hardware all
//     the same: no policy can starve a program or deadlock two that wait for each other.
//   - An operation runs on the partition that its terms name. One that does not fit there
//     (cooperative grids, clusters, a graph with either) runs on the smallest one of the snapshot
//     that holds it; the whole device always does.
//   - A coroutine that is alone on its device is given everything at once: no window or budget
//     holds it, only the partitions of its quiet terms count.
//   - The policy is asked when a coroutine comes, goes, begins or ends to have work, when a
//     setting changes, when a budget is used up, and at `ask_again_at`.
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
// A duration, or a point of a clock that never goes back.
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
  int sm_group =
      1;  // partitions are made of whole groups; what makes no whole group belongs to the last one
  int groups() const { return sm_count / sm_group > 0 ? sm_count / sm_group : 1; }
  // The SMs of groups [begin, end).
  SmRange Groups(int begin, int end) const {
    const int first = begin * sm_group;
    return {first, (end == groups() ? sm_count : end * sm_group) - first};
  }
};

enum class TenantClass : uint8_t {
  kUnset,    // the policy may learn it from what the tenant does
  kLatency,  // somebody waits for each result
  kBatch,    // only the throughput counts
};

// What the operator says about a tenant. 0 and kUnset: nothing said.
struct Tenant {
  std::string name;
  TenantClass tenant_class = TenantClass::kUnset;
  double weight = 1;             // of its share where shares are fair; above 0
  int sm_percent = 0;            // a fixed share of the SMs
  int min_sms = 0, max_sms = 0;  // bounds of the partitions it is given
  Nanoseconds slo_latency = 0;   // of a burst of work, from its first operation to its end
  Nanoseconds slo_ttft = 0, slo_tpot = 0;  // time to first token, time per output token
};

// A program that produces tokens, as its pattern of calls shows. Bursts that end with the client
// reading a result are counted as tokens when they repeat; a burst that is much longer than the
// others is a prefill.
struct TokenView {
  uint64_t tokens = 0;          // 0: no such pattern was seen
  Nanoseconds last_at = 0;      // when the latest one was read
  Nanoseconds recent_tpot = 0;  // mean time between the latest ones
  Nanoseconds decode_work = 0;  // device time that a token takes when nobody is in the way
  Nanoseconds step_work = 0;    // ... that the burst which is running is likely to take, in all
  bool prefill = false;         // the burst that is running is one
  Nanoseconds prefill_since = 0;
};

// A coroutine and what was learned about it. Device time is measured as if on the whole device and
// alone.
struct CoroutineView {
  CoroutineId id = 0;
  const Tenant* tenant = nullptr;  // never null
  Nanoseconds opened_at = 0;

  // ---- now
  bool has_work = false;       // queued here, or in the hardware
  Nanoseconds changed_at = 0;  // since when has_work is what it is
  Nanoseconds in_flight = 0;   // device time of what is in the hardware
  // Since when its next operation is not let through; 0: it is not held.
  Nanoseconds held_since = 0;

  // ---- of late
  Nanoseconds device_time = 0;  // of all that was given to the hardware since it was opened
  Nanoseconds longest_operation = 0, typical_operation = 0;
  Nanoseconds typical_burst = 0;  // device time between two times without work
  Nanoseconds typical_gap = 0;    // time without work
  // Share of its device time in operations that are bound by memory and not by SMs: 0 to 1, below
  // 0 when not known.
  double memory_bound = -1;
  TokenView tokens;
};

struct Snapshot {
  Nanoseconds now = 0;
  DeviceShape device;
  // What operations may run on. [0] is the whole device, as {0, 0}; the others are those that
  // Partitions() announced and those that the device keeps for everybody.
  absl::Span<const SmRange> partitions;
  absl::Span<const Tenant> tenants;  // all that are configured, whether they are here or not
  absl::Span<const CoroutineView> coroutines;  // in the order in which they were opened
};

// The index of `range` in `partitions`; 0, the whole device, when it is not there.
inline int IndexOf(absl::Span<const SmRange> partitions, const SmRange& range) {
  for (size_t i = 0; i < partitions.size(); ++i) {
    if (partitions[i] == range) return static_cast<int>(i);
  }
  return 0;
}

struct Terms {
  int partition = 0;  // index into the snapshot's, of short operations and those of unknown length
  int long_partition = 0;      // of the others
  int yielding_partition = 0;  // ... of the others whose blocks take less than `yielding_block`:
                               // who is urgent gets SMs of theirs while they run
  Nanoseconds yielding_block = 0;
  // From which device time on an operation is long: the time by which it delays who is urgent
  // (Grant) and begins meanwhile. That is its duration, unless its blocks are so short that urgent
  // ones come in between.
  Nanoseconds long_operation = kForever;
  Nanoseconds window = kForever;  // 0: nothing is given to the hardware
  Nanoseconds longest_hold = 100 * kMillisecond;
  friend bool operator==(const Terms&, const Terms&) = default;
};

inline constexpr int kRanks = 8;

// What one coroutine may do until the next decision.
struct Grant {
  int rank = 0;  // 0 to kRanks - 1; lower goes first
  // In the hardware, too, where it can: blocks of its kernels begin before blocks of others that
  // wait. Nothing that runs is stopped by it.
  bool urgent = false;
  Terms quiet, pressed;
  std::optional<Terms> closing;  // none: the pressed ones
  // The part of a burst of its work, by the typical length of one and from its first operation on,
  // in which others of higher ranks have their pressed terms; 1: all of it, however long it takes.
  // After that they have their closing terms: who has little left to do loses little. A burst that
  // begins beside a long operation is slower already, and presses to its end, and so does one that
  // is longer than usual. 0 to 1.
  double pressing = 1;
  // Device time that may be given to the hardware; the policy is asked when it is used up, and
  // nothing more is given until then.
  Nanoseconds budget = kForever;
  // Partitions where it is likely to run soon: its graphs are made ready there ahead of time.
  absl::InlinedVector<int, 4> prepare;
  friend bool operator==(const Grant&, const Grant&) = default;
};

inline const Terms& ClosingTerms(const Grant& grant) {
  return grant.closing.has_value() ? *grant.closing : grant.pressed;
}

// Until when a burst presses others that began then (Grant::pressing). `burst`: what it has given
// to the hardware until now; of one that is longer than they usually are, or the first one of all,
// nobody knows how much is left. `disturbed`: a long operation of somebody else was in the hardware
// when it began.
inline Nanoseconds PressingUntil(double pressing, Nanoseconds began, Nanoseconds typical_burst,
                                 Nanoseconds burst, bool disturbed) {
  const bool usual = typical_burst > 0 && burst <= typical_burst + typical_burst / 4;
  if (pressing >= 1 || !usual || disturbed) return kForever;
  return began + static_cast<Nanoseconds>(static_cast<double>(typical_burst) * pressing);
}

struct Decision {
  std::vector<Grant> grants;  // grants[i] is for snapshot.coroutines[i]
  Nanoseconds ask_again_at = kForever;
};

struct Options {
  std::map<std::string, std::string> parameters;  // of the policy, by name
};

// Threading: one thread at a time.
class Policy {
 public:
  virtual ~Policy() = default;
  // Whether it can serve these tenants: asked before Partitions() and Decide() see them.
  // InvalidArgument with the reason.
  virtual absl::Status Check(absl::Span<const Tenant> tenants) const { return absl::OkStatus(); }
  // Whether decisions depend on what the coroutines do. If not, nothing is learned about them: the
  // policy is asked only when a coroutine comes or goes or a setting changes, and all that it may
  // give is a partition: no ranks, windows or budgets.
  virtual bool Watches() const { return true; }
  // The partitions that decisions want to name, beside those that every device keeps. Making one
  // drains the device, so they are made when the daemon starts, or when the policy or a tenant is
  // changed.
  virtual std::vector<SmRange> Partitions(const DeviceShape& device,
                                          absl::Span<const Tenant> tenants) const = 0;
  virtual Decision Decide(const Snapshot& snapshot) = 0;
};

}  // namespace detshare::policy
