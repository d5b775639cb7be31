#include "policy/temporal/temporal.h"

#include "policy/status_macros.h"
#include "policy/turns/turns.h"
#include "policy/whole/whole.h"

namespace detshare::policy {
namespace {

constexpr Parameter kParameters[] = {
    {.name = "slice",
     .kind = ParameterKind::kDuration,
     .default_value = "10ms",
     .min = "100us",
     .max = "1s",
     .help = "length of a turn when all weights are equal"},
};

}  // namespace

absl::Span<const Parameter> TemporalParameters() { return kParameters; }

absl::StatusOr<std::unique_ptr<Policy>> CreateTemporal(const Options& options) {
  DETSHARE_ASSIGN_OR_RETURN(ParameterValues values,
                            ParameterValues::Read("temporal", kParameters, options));
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Policy> whole, CreateWhole({}));
  return WithTurnsForAll(std::move(whole), values.Duration("slice"));
}

}  // namespace detshare::policy
