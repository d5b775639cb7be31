// The rules by which the API server takes a ResourceSlice (resource.k8s.io/v1), as far as drivers of
// one node meet them.
#include <algorithm>
#include <optional>
#include <regex>
#include <set>

#include "tests/tools/kubernetes/dra/api_server_stand_in.h"
#include "tools/kubernetes/dra/quantity.h"

namespace detshare::kubernetes {
namespace {

using Json = nlohmann::json;

bool Matches(const Json& value, const char* pattern, size_t longest) {
  return value.is_string() && value.get<std::string>().size() <= longest &&
         std::regex_match(value.get<std::string>(), std::regex(pattern));
}

constexpr char kLabel[] = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
constexpr char kSubdomain[] = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
constexpr char kIdentifier[] = "[A-Za-z_][A-Za-z0-9_]*";
constexpr char kTaintKey[] =
    "([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?";
constexpr char kLabelValue[] = "([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?";
// Semantic versions have no leading zeros.
constexpr char kVersion[] = "(0|[1-9][0-9]*)\\.(0|[1-9][0-9]*)\\.(0|[1-9][0-9]*)";

// A key that the API does not have; "": none.
std::string Unknown(const Json& object, const std::set<std::string>& known) {
  for (const auto& [key, value] : object.items()) {
    if (known.count(key) == 0) return key;
  }
  return "";
}

std::optional<int64_t> Quantity(const Json& value) {
  return value.is_string() ? ParseQuantity(value.get<std::string>()) : std::nullopt;
}

std::string ProblemOfCapacity(const Json& capacity, bool shared) {
  if (Unknown(capacity, {"value", "requestPolicy"}) != "") return "unknown field";
  const auto value = Quantity(capacity.value("value", Json()));
  if (!value.has_value()) return "value is no quantity";
  if (!capacity.contains("requestPolicy")) return "";
  if (!shared) return "requestPolicy needs allowMultipleAllocations";
  const Json& policy = capacity["requestPolicy"];
  if (Unknown(policy, {"default", "validRange"}) != "" || !policy.contains("validRange"))
    return "requestPolicy has an unknown field";
  const Json& range = policy["validRange"];
  if (Unknown(range, {"min", "max", "step"}) != "") return "validRange has an unknown field";
  const auto by_default = Quantity(policy.value("default", Json()));
  const auto min = Quantity(range.value("min", Json()));
  if (!by_default.has_value()) return "default is required when validRange is defined";
  if (!min.has_value()) return "min is required when validRange is defined";
  if (*min > *value) return "min is larger than the capacity";
  if (*by_default < *min) return "default is less than min";
  if (*by_default > *value) return "default is larger than the capacity";
  if (range.contains("max")) {
    const auto max = Quantity(range["max"]);
    if (!max.has_value() || *max > *value || *max < *min || *by_default > *max)
      return "max does not fit";
  }
  if (range.contains("step")) {
    const auto step = Quantity(range["step"]);
    if (!step.has_value() || *step <= 0) return "step is no quantity above 0";
    if (*min + *step > *value) return "one step is beyond the capacity";
    if ((*by_default - *min) % *step != 0) return "default is no multiple of step";
  }
  return "";
}

std::string ProblemOfDevice(const Json& device) {
  const std::string unknown =
      Unknown(device, {"name", "attributes", "capacity", "allowMultipleAllocations", "taints"});
  if (unknown != "") return "unknown field " + unknown;
  if (!Matches(device.value("name", Json()), kLabel, 63)) return "name is no DNS label";
  const Json attributes = device.value("attributes", Json::object());
  const Json capacities = device.value("capacity", Json::object());
  if (attributes.size() + capacities.size() > 32) return "too many attributes and capacities";
  for (const auto& [name, attribute] : attributes.items()) {
    if (!Matches(name, kIdentifier, 32)) return "attribute " + name + " is no C identifier";
    if (attribute.size() != 1) return "attribute " + name + " has not exactly one value";
    const std::string kind = attribute.begin().key();
    const Json& value = attribute.begin().value();
    const bool fits = kind == "string" ? value.is_string() && value.get<std::string>().size() <= 64
                      : kind == "version" ? Matches(value, kVersion, 64)
                      : kind == "int"     ? value.is_number_integer()
                                          : kind == "bool" && value.is_boolean();
    if (!fits) return "attribute " + name + " is " + attribute.dump();
  }
  for (const auto& [name, capacity] : capacities.items()) {
    if (!Matches(name, kIdentifier, 32)) return "capacity " + name + " is no C identifier";
    const std::string problem =
        ProblemOfCapacity(capacity, device.value("allowMultipleAllocations", false));
    if (problem != "") return "capacity " + name + ": " + problem;
  }
  for (const Json& taint : device.value("taints", Json::array())) {
    if (Unknown(taint, {"key", "value", "effect", "timeAdded"}) != "") return "unknown taint field";
    if (!Matches(taint.value("key", Json()), kTaintKey, 253)) return "taint key";
    if (!Matches(taint.value("value", Json("")), kLabelValue, 63)) return "taint value";
    const Json effect = taint.value("effect", Json());
    if (effect != "NoSchedule" && effect != "NoExecute" && effect != "None") return "taint effect";
  }
  return "";
}

}  // namespace

std::string ProblemOfSlice(const Json& spec) {
  if (!spec.is_object()) return "spec is required";
  const std::string unknown = Unknown(spec, {"driver", "pool", "nodeName", "devices"});
  if (unknown != "") return "unknown field spec." + unknown;
  if (!Matches(spec.value("driver", Json()), kSubdomain, 63)) return "spec.driver";
  if (!Matches(spec.value("nodeName", Json()), kSubdomain, 253)) return "spec.nodeName";
  const Json pool = spec.value("pool", Json::object());
  if (Unknown(pool, {"name", "generation", "resourceSliceCount"}) != "")
    return "unknown pool field";
  if (!Matches(pool.value("name", Json()), kSubdomain, 253)) return "spec.pool.name";
  if (!pool.value("generation", Json()).is_number_integer() || pool["generation"] < 0)
    return "spec.pool.generation";
  if (pool.value("resourceSliceCount", Json()) != 1) return "spec.pool.resourceSliceCount";
  const Json devices = spec.value("devices", Json::array());
  std::set<std::string> names;
  bool tainted = false;
  for (const Json& device : devices) {
    const std::string problem = ProblemOfDevice(device);
    if (problem != "") return "device: " + problem;
    if (!names.insert(device["name"]).second) return "a device's name is there twice";
    tainted = tainted || device.contains("taints");
  }
  if (devices.size() > (tainted ? 64u : 128u)) return "too many devices";
  return "";
}

}  // namespace detshare::kubernetes
