// Policy "auto": finds the classes of tenants from what their programs do, then decides by class.
//
// A tenant has the class that the operator set. Without one, it is latency if it has an SLO or
// its program produces tokens. Otherwise the policy judges the program's bursts, after
// `learn_after` of device time. After `learn_bursts` bursts it judges earlier, but finds only latency:
// a program with short bursts that waits for others has little device time.
//
//   - latency: bursts take at most `longest_burst`, and pauses between them last at least half a
//     burst and at least `min_gap`. The verdict holds until bursts are twice as long as that or
//     pauses half as long;
//   - batch: all other work.
//
// Programs that wait for each other's work are latency if one of them is: a server of two processes
// is as slow as the slower one.
//
// Then the policy decides as tpot-first, which treats programs without tokens by class. If only
// batch is on the device, it divides the device by weight, as fair. Batch that is bound by memory
// runs on half of the SMs while other batch can use the rest, because half of the SMs draw nearly
// all of the bandwidth.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

// The policy's own parameters and those of tpot-first. Valid for ever.
absl::Span<const Parameter> AutomaticParameters();
// InvalidArgument for options that AutomaticParameters() do not allow.
absl::StatusOr<std::unique_ptr<Policy>> CreateAutomatic(const Options& options);

}  // namespace detshare::policy
