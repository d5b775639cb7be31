// The parameters of a claim from bytes (parameters.h), as an annotation has them.
#include <cstddef>
#include <cstdint>
#include <string>

#include "policy/config/config.h"
#include "tests/fuzzing/check.h"
#include "tools/kubernetes/dra/parameters.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace detshare;              // NOLINT
  using namespace detshare::kubernetes;  // NOLINT
  const auto parameters = nlohmann::json::parse(data, data + size, nullptr, false);
  if (parameters.is_discarded()) return 0;
  const auto parsed = ParseParameters(parameters, "parameters", Typed::kNo);
  if (!parsed.ok()) {
    // It is one line that names a field, and goes to terminals.
    FUZZ_CHECK(parsed.status().message().find("parameters") == 0);
    FUZZ_CHECK(IsPlain(parsed.status().message()));
    return 0;
  }
  // What is accepted is what a tenant may have.
  FUZZ_CHECK(!parsed->has_weight() || parsed->weight() > 0);
  FUZZ_CHECK(!parsed->has_max_sms() || parsed->max_sms() > 0);
  FUZZ_CHECK(!parsed->has_pinned_memory() || parsed->pinned_memory() > 0);
  for (const int64_t objective : {parsed->has_slo_latency_ns() ? parsed->slo_latency_ns() : 1,
                                  parsed->has_slo_ttft_ns() ? parsed->slo_ttft_ns() : 1,
                                  parsed->has_slo_tpot_ns() ? parsed->slo_tpot_ns() : 1})
    FUZZ_CHECK(objective > 0);
  FUZZ_CHECK(!parsed->has_memory() && !parsed->has_min_sms() && !parsed->has_sessions());
  FUZZ_CHECK(ConflictOf(*parsed, *parsed).empty());
  return 0;
}
