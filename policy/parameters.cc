#include "policy/parameters.h"

#include <cmath>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace detshare::policy {
namespace {

std::optional<double> Parse(ParameterKind kind, absl::string_view text) {
  if (kind == ParameterKind::kDuration) {
    absl::Duration duration;
    if (!absl::ParseDuration(std::string(text), &duration)) return std::nullopt;
    return absl::ToDoubleNanoseconds(duration);
  }
  if (kind == ParameterKind::kPercent) absl::ConsumeSuffix(&text, "%");
  double number = 0;
  if (!absl::SimpleAtod(std::string(text), &number) || !std::isfinite(number)) return std::nullopt;
  return number;
}

absl::string_view Example(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kDuration:
      return "a duration such as 500us, 2ms or 1.5s";
    case ParameterKind::kPercent:
      return "a percentage";
    case ParameterKind::kNumber:
      return "a number";
  }
  return "";
}

std::string Names(absl::Span<const Parameter> parameters) {
  if (parameters.empty()) return "none";
  std::string names;
  for (const Parameter& parameter : parameters) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", parameter.name);
  }
  return names;
}

}  // namespace

absl::StatusOr<ParameterValues> ParameterValues::Read(absl::string_view policy,
                                                      absl::Span<const Parameter> parameters,
                                                      const Options& options) {
  ParameterValues read;
  for (const Parameter& parameter : parameters) {
    read.values_[std::string(parameter.name)] = *Parse(parameter.kind, parameter.default_value);
  }
  for (const auto& [name, text] : options.parameters) {
    const Parameter* parameter = nullptr;
    for (const Parameter& known : parameters) {
      if (known.name == name) parameter = &known;
    }
    if (parameter == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("policy ", policy, " has no parameter \"",
                                                     name, "\"; it has ", Names(parameters)));
    }
    const std::optional<double> value = Parse(parameter->kind, text);
    if (!value || *value < *Parse(parameter->kind, parameter->min) ||
        *value > *Parse(parameter->kind, parameter->max)) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy ", policy, ": ", name, " is ", Example(parameter->kind), ", from ",
                       parameter->min, " to ", parameter->max, ", not \"", text, "\""));
    }
    read.values_[name] = *value;
  }
  return read;
}

Nanoseconds ParameterValues::Duration(absl::string_view name) const {
  return std::llround(values_.find(std::string(name))->second);
}

double ParameterValues::Number(absl::string_view name) const {
  return values_.find(std::string(name))->second;
}

double ParameterValues::Fraction(absl::string_view name) const { return Number(name) / 100; }

}  // namespace detshare::policy
