// The parameters of a policy: what there are, and what somebody asked for, checked.
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
  absl::string_view least, most;  // bounds, both allowed, written as values are
  absl::string_view help;         // one line
};

// Values of all parameters of one policy: those of the options, defaults for the others.
class ParameterValues {
 public:
  // InvalidArgument for a name that `parameters` does not have, with those that it has, and for a
  // value that does not parse or is out of bounds, with what is allowed.
  static absl::StatusOr<ParameterValues> Read(absl::string_view policy,
                                              absl::Span<const Parameter> parameters,
                                              const Options& options);

  // Of a parameter of that kind, which must be there.
  Nanoseconds Duration(absl::string_view name) const;
  double Number(absl::string_view name) const;    // also of a percentage: 0 to 100
  double Fraction(absl::string_view name) const;  // a percentage as 0 to 1

 private:
  std::map<std::string, double> values_;
};

}  // namespace detshare::policy
