#include "tools/kubernetes/dra/parameters.h"

#include <google/protobuf/message.h>

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "tools/kubernetes/dra/quantity.h"

namespace detshare::kubernetes {
namespace {

using Json = nlohmann::json;
using proto::TenantSetting;

constexpr size_t kLongestInError = 64;
constexpr int64_t kMostMultiprocessors = 1 << 16;

// Each reads a value into the settings. Returns "" or what the value must be.
std::string ReadClass(const Json& value, TenantSetting* settings) {
  if (value != "latency" && value != "batch") return "latency or batch";
  settings->set_tenant_class(value.get<std::string>());
  return "";
}

std::string ReadWeight(const Json& value, TenantSetting* settings) {
  const double weight = value.is_number() ? value.get<double>() : 0;
  if (!std::isfinite(weight) || weight <= 0) return "a number above 0";
  settings->set_weight(weight);
  return "";
}

std::string ReadExclusive(const Json& value, TenantSetting* settings) {
  if (!value.is_boolean()) return "true or false";
  settings->set_exclusive(value.get<bool>());
  return "";
}

std::string ReadMaxMultiprocessors(const Json& value, TenantSetting* settings) {
  if (!value.is_number_integer() || value < 1 || value > kMostMultiprocessors)
    return "a whole number above 0";
  settings->set_max_sms(value.get<int32_t>());
  return "";
}

std::string ReadPinnedMemory(const Json& value, TenantSetting* settings) {
  std::optional<int64_t> bytes;
  if (value.is_string()) bytes = ParseQuantity(value.get<std::string>());
  if (value.is_number_unsigned()) bytes = value.get<int64_t>();  // negative above 2^63 - 1
  if (!bytes.has_value() || *bytes < 1) return "a quantity of bytes above 0, such as \"4Gi\"";
  settings->set_pinned_memory(static_cast<uint64_t>(*bytes));
  return "";
}

std::string ReadObjective(const Json& value, TenantSetting* settings,
                          void (TenantSetting::*set)(int64_t)) {
  absl::Duration time;
  if (!value.is_string() || !absl::ParseDuration(value.get<std::string>(), &time) ||
      time < absl::Nanoseconds(1) || time > absl::Hours(24))
    return "a time above 0 and up to 24h, such as \"40ms\"";
  (settings->*set)(absl::ToInt64Nanoseconds(time));
  return "";
}

std::string ReadLatency(const Json& value, TenantSetting* settings) {
  return ReadObjective(value, settings, &TenantSetting::set_slo_latency_ns);
}
std::string ReadTtft(const Json& value, TenantSetting* settings) {
  return ReadObjective(value, settings, &TenantSetting::set_slo_ttft_ns);
}
std::string ReadTpot(const Json& value, TenantSetting* settings) {
  return ReadObjective(value, settings, &TenantSetting::set_slo_tpot_ns);
}

struct Parameter {
  const char* name;
  int field;  // of TenantSetting
  std::string (*read)(const Json& value, TenantSetting* settings);
};

constexpr char kObjectives[] = "objectives";
constexpr Parameter kParameters[] = {
    {"class", TenantSetting::kTenantClassFieldNumber, ReadClass},
    {"weight", TenantSetting::kWeightFieldNumber, ReadWeight},
    {"exclusive", TenantSetting::kExclusiveFieldNumber, ReadExclusive},
    {"maxMultiprocessors", TenantSetting::kMaxSmsFieldNumber, ReadMaxMultiprocessors},
    {"pinnedMemory", TenantSetting::kPinnedMemoryFieldNumber, ReadPinnedMemory}};
constexpr Parameter kObjectiveParameters[] = {
    {"latency", TenantSetting::kSloLatencyNsFieldNumber, ReadLatency},
    {"ttft", TenantSetting::kSloTtftNsFieldNumber, ReadTtft},
    {"tpot", TenantSetting::kSloTpotNsFieldNumber, ReadTpot}};

// Text of a user for an error, which goes to terminals and logs.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kLongestInError) text = text.substr(0, kLongestInError) + "...";
  return text;
}

template <size_t kCount>
std::string Names(const Parameter (&parameters)[kCount]) {
  return absl::StrJoin(parameters, ", ", [](std::string* out, const Parameter& parameter) {
    absl::StrAppend(out, parameter.name);
  });
}

absl::Status Wrong(const std::string& where, const std::string& must, const Json& value) {
  return absl::InvalidArgumentError(absl::StrCat(where, " is ", must, ", not ", Shown(value)));
}

template <size_t kCount>
const Parameter* Find(const Parameter (&parameters)[kCount], const std::string& name) {
  for (const Parameter& parameter : parameters) {
    if (name == parameter.name) return &parameter;
  }
  return nullptr;
}

absl::Status UnknownField(const std::string& where, const std::string& name,
                          const std::string& known) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, " has no field ", Shown(name), "; its fields are ", known));
}

absl::Status ReadType(const Json& object, const char* name, const char* must,
                      const std::string& where, Typed typed) {
  const auto found = object.find(name);
  if (found == object.end()) {
    if (typed == Typed::kNo) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(where, ".", name, " is missing: it is ", must));
  }
  return *found == must ? absl::OkStatus() : Wrong(absl::StrCat(where, ".", name), must, *found);
}

std::string ParameterOf(int field) {
  for (const Parameter& parameter : kParameters) {
    if (parameter.field == field) return parameter.name;
  }
  for (const Parameter& parameter : kObjectiveParameters) {
    if (parameter.field == field) return absl::StrCat(kObjectives, ".", parameter.name);
  }
  return "";
}

// The message with this field only, as bytes.
std::string OnlyField(TenantSetting settings, const google::protobuf::FieldDescriptor* only) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  settings.GetReflection()->ListFields(settings, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field != only) settings.GetReflection()->ClearField(&settings, field);
  }
  return settings.SerializeAsString();
}

}  // namespace

absl::StatusOr<TenantSetting> ParseParameters(const Json& parameters, const std::string& where,
                                              Typed typed) {
  if (!parameters.is_object()) return Wrong(where, "an object", parameters);
  for (const auto& [name, must] :
       {std::pair("apiVersion", kParametersVersion), std::pair("kind", kParametersKind)}) {
    if (absl::Status read = ReadType(parameters, name, must, where, typed); !read.ok()) return read;
  }
  TenantSetting settings;
  for (const auto& [name, value] : parameters.items()) {
    const std::string path = absl::StrCat(where, ".", name);
    if (name == "apiVersion" || name == "kind") continue;
    if (name == kObjectives) {
      if (!value.is_object()) return Wrong(path, "an object", value);
      for (const auto& [objective, time] : value.items()) {
        const Parameter* const known = Find(kObjectiveParameters, objective);
        if (known == nullptr) return UnknownField(path, objective, Names(kObjectiveParameters));
        const std::string must = known->read(time, &settings);
        if (!must.empty()) return Wrong(absl::StrCat(path, ".", objective), must, time);
      }
      continue;
    }
    const Parameter* const known = Find(kParameters, name);
    if (known == nullptr) {
      return UnknownField(
          where, name, absl::StrCat("apiVersion, kind, ", Names(kParameters), ", ", kObjectives));
    }
    const std::string must = known->read(value, &settings);
    if (!must.empty()) return Wrong(path, must, value);
  }
  return settings;
}

std::string ConflictOf(const TenantSetting& a, const TenantSetting& b) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  a.GetReflection()->ListFields(a, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (!b.GetReflection()->HasField(b, field)) continue;
    if (OnlyField(a, field) != OnlyField(b, field)) return ParameterOf(field->number());
  }
  return "";
}

}  // namespace detshare::kubernetes
