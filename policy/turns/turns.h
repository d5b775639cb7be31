// Turns any policy into one under which exclusive tenants (Tenant::exclusive) have the device for
// themselves, in turns with the others.
//
// The ordinary work of a device is divided into units: one for each exclusive tenant, and one for
// all other coroutines. The units take turns by weight (turn_order.h); the weight of the others is
// the sum of the weights of those with work. While it is the others' turn, the policy decides among
// them as if nobody else were on the device. In its own turn, an exclusive tenant has the whole
// device within the bounds of its SMs. The turn groups of the grants keep the units apart.
//
// Urgent work that preempts takes turns in the same way, but only with other such work.
//
// Without a coroutine of an exclusive tenant, the decisions are those of the policy.
#pragma once

#include <memory>

#include "policy/policy.h"

namespace detshare::policy {

// The length of a turn, if no parameter sets it. A change of turns costs some 50 us: the work in
// flight ends, the worker notices, and the next worker's first kernels go to the hardware.
inline constexpr Nanoseconds kTurnSlice = 10 * kMillisecond;

// `policy` decides within the turns.
std::unique_ptr<Policy> WithExclusiveTurns(std::unique_ptr<Policy> policy,
                                           Nanoseconds slice = kTurnSlice);
// Every coroutine is a unit. The coroutines of a tenant share its turns. Engines also take turns of
// `slice` (Policy::EngineTurn).
std::unique_ptr<Policy> WithTurnsForAll(std::unique_ptr<Policy> policy, Nanoseconds slice);

}  // namespace detshare::policy
