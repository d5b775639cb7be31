// Policy "tpot-first": the program that is nearest to missing its time per output token (TPOT) goes
// first.
//
// A decoding program's slack is its TPOT objective, less the time since its last token, less the
// device time that its next step takes. With slack below a quarter of the objective, the program is
// urgent and has rank 1. Below a half it is near and has rank 2. Otherwise it has rank 3, and
// beside programs of lower ranks it has the window `relaxed_window`.
//
// A prefill has rank 4 and runs on a share of the SMs. It is bound by arithmetic and decoding by
// memory, so both go on beside each other. It stops while a decoding program is urgent. It rises as
// it waits: at half of its objective for the time to first token (TTFT) to rank 2 with the whole
// device, at four fifths to rank 1. So there is a bound on what decoding takes from a prefill.
//
// Latency tenants that make no tokens have rank 0 or 1 by their SLOs (latency_order.h). A tenant with token
// objectives has rank 2 until it makes tokens, if it is a latency tenant. Tenants without a class (rank 5) and
// batch (rank 6) have the limits of best_effort_limits.h beside all of these.
//
// A tenant without objectives has those of the parameters.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::Span<const Parameter> TpotFirstParameters();
// InvalidArgument for options that TpotFirstParameters() do not allow.
absl::StatusOr<std::unique_ptr<Policy>> CreateTpotFirst(const Options& options);

// Whether the policy treats a coroutine as a producer of tokens: its calls show tokens, or its
// tenant has an objective for tokens. Always false for batch tenants.
bool ProducesTokens(const CoroutineView& coroutine);

}  // namespace detshare::policy
