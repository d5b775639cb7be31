// Limits for best-effort work: work that no user waits for, on a device where other coroutines go
// first. Policies `priority`, `tpot-first` and `auto` use them.
//
// Some devices stop running work when urgent work comes (DeviceShape::preemption). There
// best-effort work has no limits beside urgent work that preempts. Otherwise the hardware cannot
// stop an operation that runs. So a request of a coroutine that goes first waits for the
// best-effort work that is in the hardware when the request comes. These rules bound that work:
//
//   - Its window is a few of its operations: enough that the device does not run dry while the next
//     operations are on their way, and no more.
//   - Its long operations run on a partition that leaves SMs free. A request that comes meanwhile
//     begins on the free SMs. Long operations of short blocks may have more SMs, because the
//     request gets some of these SMs back whenever a block ends.
//   - While a coroutine that goes first is in its contention phase, best-effort work has a small
//     window, or none, on few SMs. A coroutine that was throttled for `max_throttle` may give one
//     operation to the hardware in any case.
//   - In the last part of a request, best-effort work goes on, on a part of the SMs. That makes the
//     request a little longer. A request that began on a free device has time for that.
//   - Best-effort work makes no room for a coroutine that has had no work for `absent_after`.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

// The operations in the hardware that keep it from running dry: one runs, one is next, and one is on its
// way.
inline constexpr int kOperationsInFlight = 3;

// The rules' numbers. Shares are 0 to 1.
struct BestEffortRules {
  Nanoseconds window = 100 * kMicrosecond;
  Nanoseconds min_window = 30 * kMicrosecond;  // if the operations are short
  Nanoseconds long_operation = 300 * kMicrosecond;
  double long_share = 0.42;      // of the SMs, for long operations
  double yielding_share = 0.62;  // of the SMs, for long operations of short blocks
  Nanoseconds yielding_block = 100 * kMicrosecond;  // shorter blocks are short
  double contended_share = 0.25;                    // of the SMs, under contended limits
  Nanoseconds contended_window = 0;
  double tail = 0.6;         // of a request: its last part, under tail limits
  double tail_share = 0.42;  // of the SMs, under tail limits
  Nanoseconds tail_window = 100 * kMicrosecond;
  Nanoseconds max_throttle = 20 * kMillisecond;
  Nanoseconds absent_after = 10 * kSecond;

  // Reads the parameters below, which `values` must have.
  static BestEffortRules Of(const ParameterValues& values);
};

// A policy that calls BestEffortRules::Of() lists all of these among its parameters.
inline constexpr Parameter kBestEffortWindow = {
    .name = "window",
    .kind = ParameterKind::kDuration,
    .default_value = "100us",
    .min = "1us",
    .max = "1s",
    .help = "largest device time in flight of best-effort work"};
inline constexpr Parameter kBestEffortMinWindow = {
    .name = "min_window",
    .kind = ParameterKind::kDuration,
    .default_value = "30us",
    .min = "1us",
    .max = "1s",
    .help = "window of best-effort work whose operations are short"};
inline constexpr Parameter kBestEffortLongOperation = {
    .name = "long_operation",
    .kind = ParameterKind::kDuration,
    .default_value = "300us",
    .min = "1us",
    .max = "10s",
    .help = "operations that delay others at least this long leave SMs free"};
inline constexpr Parameter kBestEffortLongShare = {.name = "long_share",
                                                   .kind = ParameterKind::kPercent,
                                                   .default_value = "42",
                                                   .min = "1",
                                                   .max = "100",
                                                   .help = "share of the SMs for long operations"};
inline constexpr Parameter kBestEffortYieldingShare = {
    .name = "yielding_share",
    .kind = ParameterKind::kPercent,
    .default_value = "62",
    .min = "1",
    .max = "100",
    .help = "share of the SMs for long operations of short blocks"};
inline constexpr Parameter kBestEffortYieldingBlock = {
    .name = "yielding_block",
    .kind = ParameterKind::kDuration,
    .default_value = "100us",
    .min = "0",
    .max = "10s",
    .help = "blocks that take less than this are short"};
inline constexpr Parameter kBestEffortContendedShare = {
    .name = "contended_share",
    .kind = ParameterKind::kPercent,
    .default_value = "25",
    .min = "1",
    .max = "100",
    .help = "share of the SMs under contended limits"};
inline constexpr Parameter kBestEffortContendedWindow = {
    .name = "contended_window",
    .kind = ParameterKind::kDuration,
    .default_value = "0",
    .min = "0",
    .max = "1s",
    .help = "window under contended limits; 0: best-effort work stops"};
inline constexpr Parameter kBestEffortTail = {
    .name = "tail",
    .kind = ParameterKind::kPercent,
    .default_value = "60",
    .min = "0",
    .max = "100",
    .help = "share of a request: its last part, under tail limits; 0: no tail limits"};
inline constexpr Parameter kBestEffortTailShare = {.name = "tail_share",
                                                   .kind = ParameterKind::kPercent,
                                                   .default_value = "42",
                                                   .min = "1",
                                                   .max = "100",
                                                   .help = "share of the SMs under tail limits"};
inline constexpr Parameter kBestEffortTailWindow = {
    .name = "tail_window",
    .kind = ParameterKind::kDuration,
    .default_value = "100us",
    .min = "0",
    .max = "1s",
    .help = "window under tail limits; 0: best-effort work stops"};
inline constexpr Parameter kBestEffortMaxThrottle = {
    .name = "max_throttle",
    .kind = ParameterKind::kDuration,
    .default_value = "20ms",
    .min = "100us",
    .max = "10s",
    .help = "longest throttle; then one operation goes through in any case"};

inline constexpr Parameter kBestEffortAbsentAfter = {
    .name = "absent_after",
    .kind = ParameterKind::kDuration,
    .default_value = "10s",
    .min = "1ms",
    .max = "1000000s",
    .help =
        "time without work after which other programs make no room for a program that goes first"};

// The place of a coroutine in the order of a snapshot.
struct Precedence {
  int rank = 0;
  bool urgent = false;  // as in Grant
};

// Whether coroutine `index` must make room: a coroutine of a lower rank has work, or it had work or
// was opened within the last `absent_after`. A coroutine whose work stops that of coroutine `index`
// in the hardware needs no room. One in another engine needs room only if the work of both preempts:
// otherwise one stops the other, or they take turns. Lowers `ask_again_at` to the time when the result
// changes if nothing else happens. order[i] is for snapshot.coroutines[i].
bool OthersFirst(const Snapshot& snapshot, const std::vector<Precedence>& order, size_t index,
                 Nanoseconds absent_after, Nanoseconds* ask_again_at);

// A burst of urgent work that lasts longer than kLongBurst pauses for kBurstPause in each kLongBurst +
// kBurstPause, if it stops the work of others, in whichever engine. All such bursts pause at the same
// time. So the others progress beside urgent work that never ends. The window bounds the work that is
// still in flight when the pause begins.
inline constexpr Nanoseconds kLongBurst = 100 * kMillisecond;
inline constexpr Nanoseconds kBurstPause = 30 * kMillisecond;
inline constexpr Nanoseconds kLongBurstWindow = 20 * kMillisecond;
// Sets that in the grant of coroutine `index`. Lowers `ask_again_at` as OthersFirst().
void PauseLongBursts(const Snapshot& snapshot, const std::vector<Precedence>& order, size_t index,
                     Grant* grant, Nanoseconds* ask_again_at);

// The partitions that the rules' shares need beside those that every device keeps. There is one for
// each share to which whole groups of SMs come nearer than the partitions that are there.
std::vector<SmRange> BestEffortPartitions(const DeviceShape& device, const BestEffortRules& rules);

// The grant of a best-effort coroutine, without its rank. `others_first` is the result of
// OthersFirst(); if it is false, the limits set no bounds beside `max_throttle` and the tenant's
// bounds of SMs.
Grant BestEffortGrant(const Snapshot& snapshot, const CoroutineView& coroutine,
                      const BestEffortRules& rules, bool others_first);

// Sets the contention phase in the grant of coroutine `first`, which goes before best-effort work.
// A coroutine that works for most of the time gets its whole burst, because a longer request makes
// its next requests wait.
void SetContentionPhase(const CoroutineView& first, const BestEffortRules& rules, Grant* grant);

// Sets grant->prepare to the partitions that the limits name, except the partition of short
// operations under idle limits.
void PreparePartitions(Grant* grant);

}  // namespace detshare::policy
