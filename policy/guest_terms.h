// Terms for work that nobody waits for, on a device where others come first.
//
// Nothing that runs can be stopped, so what such work may have in the hardware when somebody comes
// is what that one has to wait for:
//
//   - Its window is a few of its operations: enough that the device does not run dry while the next
//     ones are on their way, and no more.
//   - Long operations run on a partition that leaves SMs free: who comes meanwhile begins there.
//   Long
//     ones of short blocks may have more SMs, since who comes first gets some of them back at each
//     block's end.
//   - While somebody who comes first has work, it has a small window, or none, on few SMs. Whoever
//     is held for `longest_hold` may give one operation all the same.
//   - In the last part of a request it goes on, on a part of the SMs: that makes the request a
//     little longer, which one that began on a free device can bear.
//   - Nobody makes room for who has had no work for `absent_after`.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

struct GuestRules {
  Nanoseconds window = 100 * kMicrosecond;
  Nanoseconds least_window = 30 * kMicrosecond;
  Nanoseconds long_operation = 300 * kMicrosecond;
  double long_share = 0.42;      // of the SMs
  double yielding_share = 0.62;  // of the SMs
  Nanoseconds yielding_block = 100 * kMicrosecond;
  double pressed_share = 0.25;  // of the SMs
  Nanoseconds pressed_window = 0;
  double closing = 0.6;         // of a request
  double closing_share = 0.42;  // of the SMs
  Nanoseconds closing_window = 100 * kMicrosecond;
  Nanoseconds longest_hold = 20 * kMillisecond;
  Nanoseconds absent_after = 10 * kSecond;

  // The values of the parameters below.
  static GuestRules Of(const ParameterValues& values);
};

// For the parameters of policies that use GuestRules::Of().
inline constexpr Parameter kGuestWindow = {
    "window", ParameterKind::kDuration,
    "100us",  "1us",
    "1s",     "most device time in flight of work that gives way to others"};
inline constexpr Parameter kGuestLeastWindow = {
    "least_window", ParameterKind::kDuration,
    "30us",         "1us",
    "1s",           "its window when its operations are short"};
inline constexpr Parameter kGuestLongOperation = {
    "long_operation",
    ParameterKind::kDuration,
    "300us",
    "1us",
    "10s",
    "from which delay of others on its operations leave SMs free"};
inline constexpr Parameter kGuestLongShare = {
    "long_share", ParameterKind::kPercent, "42", "1", "100", "of the SMs, for its long operations"};
inline constexpr Parameter kGuestYieldingShare = {
    "yielding_share",
    ParameterKind::kPercent,
    "62",
    "1",
    "100",
    "of the SMs, for its long operations of short blocks"};
inline constexpr Parameter kGuestYieldingBlock = {"yielding_block",
                                                  ParameterKind::kDuration,
                                                  "100us",
                                                  "0",
                                                  "10s",
                                                  "below which its blocks are short"};
inline constexpr Parameter kGuestPressedShare = {
    "pressed_share",
    ParameterKind::kPercent,
    "25",
    "1",
    "100",
    "of the SMs, for its operations while others come first"};
inline constexpr Parameter kGuestPressedWindow = {
    "pressed_window",
    ParameterKind::kDuration,
    "0",
    "0",
    "1s",
    "its window while others come first; 0: it stops"};
inline constexpr Parameter kGuestClosing = {
    "closing", ParameterKind::kPercent,
    "60",      "0",
    "100",     "of a request of those who come first: its last part, in which others go on"};
inline constexpr Parameter kGuestClosingShare = {
    "closing_share",
    ParameterKind::kPercent,
    "42",
    "1",
    "100",
    "of the SMs, for its operations in the last part of a request"};
inline constexpr Parameter kGuestClosingWindow = {
    "closing_window",
    ParameterKind::kDuration,
    "100us",
    "0",
    "1s",
    "its window in the last part of a request; 0: it stops"};
inline constexpr Parameter kGuestLongestHold = {
    "longest_hold", ParameterKind::kDuration,
    "20ms",         "100us",
    "10s",          "after which it may give one operation in any case"};

inline constexpr Parameter kGuestAbsentAfter = {
    "absent_after", ParameterKind::kDuration,
    "10s",          "1ms",
    "1000000s",     "without work, after which nobody makes room for a program that comes first"};

// Whether somebody of a rank below coroutine `index`'s is there, for whom room is to be made.
// Lowers `ask_again_at` to when the answer is another one if nothing else happens.
bool OthersFirst(const Snapshot& snapshot, const std::vector<int>& ranks, size_t index,
                 Nanoseconds absent_after, Nanoseconds* ask_again_at);

// The partitions that the rules' shares need beside those that every device keeps: where one of
// those is not as near to a share as whole groups of SMs can be.
std::vector<SmRange> GuestPartitions(const DeviceShape& device, const GuestRules& rules);

// Everything but the rank. Without `others_first`, nobody who comes first is on the device, and the
// terms are unlimited.
Grant GuestGrant(const Snapshot& snapshot, const CoroutineView& guest, const GuestRules& rules,
                 bool others_first);

// Sets which part of the bursts of who comes first presses guests. All of it for somebody who works
// for most of the time: what makes his requests longer lets the next ones wait.
void PressGuests(const CoroutineView& first, const GuestRules& rules, Grant* grant);

// Sets what to prepare: the partitions that the terms name, but for the one of quiet, short
// operations.
void PrepareTerms(Grant* grant);

}  // namespace detshare::policy
