// The parameters of a policy. A policy declares them as an array of Parameter and reads the values
// that an operator set with ParameterValues::Read(), which checks them.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "policy/policy.h"

namespace detshare::policy {

enum class ParameterKind : uint8_t {
  kDuration,  // "2ms", "100us", "1.5s"
  kPercent,   // 0 to 100
  kNumber,
};

struct Parameter {
  absl::string_view name;
  ParameterKind kind;
  absl::string_view default_value;
  absl::string_view min, max;  // inclusive bounds, written as values are
  absl::string_view help;      // one line
};

// The values of all parameters of a policy: the operator's, and defaults for the others.
class ParameterValues {
 public:
  // InvalidArgument, with the known names, for a name that `parameters` does not have.
  // InvalidArgument, with the allowed values, for a value that does not parse or is out of bounds.
  static absl::StatusOr<ParameterValues> Read(absl::string_view policy,
                                              absl::Span<const Parameter> parameters,
                                              const Options& options);

  // The value of a parameter, which must exist and be of the function's kind.
  Nanoseconds Duration(absl::string_view name) const;
  double Number(absl::string_view name) const;    // a number, or a percentage as 0 to 100
  double Fraction(absl::string_view name) const;  // a percentage as 0 to 1

 private:
  std::map<std::string, double> values_;
};

}  // namespace detshare::policy
