// For programs that produce tokens: whoever is nearest to missing its time per output token goes
// first.
//
// A decoding program's slack is its TPOT objective less the time since its last token and less the
// device time that its next one takes. Urgent ones (slack below a quarter of the objective) have
// rank 0, near ones (below a half) rank 1, the others rank 2; none is stopped by another.
//
// A prefill has rank 3 and runs on a share of the SMs: it is bound by arithmetic, decoding by
// memory, and both fit beside each other. While a decoding program is urgent it is stopped. As it
// waits it rises: at half of its TTFT objective to rank 1 with the whole
// device, at four fifths to rank 0, so what decoding takes from it is bounded.
//
// Latency tenants without tokens have rank 1. Tenants without a class, and batch, run by the terms
// of guest_terms.h beside any of these.
//
// Objectives are the tenant's, or the parameters where it has none.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "policy/parameters.h"
#include "policy/policy.h"

namespace detshare::policy {

absl::Span<const Parameter> TpotFirstParameters();
absl::StatusOr<std::unique_ptr<Policy>> CreateTpotFirst(const Options& options);

// Whether a coroutine is treated as one that produces tokens: its calls show it, or its tenant has
// an objective for tokens. Batch tenants are not.
bool ProducesTokens(const CoroutineView& coroutine);

}  // namespace detshare::policy
