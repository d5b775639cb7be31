#include "tools/kubernetes/dra/claim.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "proto/owner.h"
#include "tools/kubernetes/dra/json_path.h"
#include "tools/kubernetes/dra/parameters.h"
#include "tools/kubernetes/dra/quantity.h"

namespace detshare::kubernetes {
namespace {

using Json = nlohmann::json;
using proto::TenantSetting;

constexpr char kEndpointPrefix[] = "claim-";
constexpr size_t kLongestUid = 58;  // so that an endpoint's name has at most 64 characters
constexpr size_t kLongestLabel = 63;
// The API server takes no longer parameters; an annotation may be longer.
constexpr size_t kMaxParameters = 10 << 10;

bool IsUid(const std::string& uid) {
  return !uid.empty() && uid.size() <= kLongestUid &&
         std::all_of(uid.begin(), uid.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// What a claim consumes of one GPU.
struct Consumed {
  int64_t memory = 0, multiprocessors = 0;
  bool operator==(const Consumed&) const = default;
};

// A capacity of an allocation's result; 0 if the whole GPU is allocated. The name of the driver may
// be left out.
absl::StatusOr<int64_t> CapacityOf(const Json& result, const char* name) {
  const Json* value = &At(result, "consumedCapacity", name);
  if (value->is_null())
    value = &At(result, "consumedCapacity", absl::StrCat(kDriver, "/", name).c_str());
  if (value->is_null()) return 0;
  std::optional<int64_t> amount;
  if (value->is_string()) amount = ParseQuantity(value->get<std::string>());
  if (value->is_number_unsigned()) amount = value->get<int64_t>();
  if (amount.has_value() && *amount >= 0) return *amount;
  return absl::InvalidArgumentError(
      absl::StrCat("status.allocation: consumedCapacity.", name, " is no quantity"));
}

// Whether an entry of the configuration applies to a request; "main/sub" also has those of "main".
bool AppliesTo(const Json& config, const std::string& request) {
  const Json& requests = At(config, "requests");
  if (!requests.is_array() || requests.empty()) return true;
  const std::string main = request.substr(0, request.find('/'));
  return std::any_of(requests.begin(), requests.end(),
                     [&](const Json& one) { return one == request || one == main; });
}

// The settings of a request: those that the DeviceClass fixes, and those of the claim.
struct Settings {
  TenantSetting of_class, of_claim;
};

absl::Status Add(const TenantSetting& more, const std::string& source, TenantSetting* settings) {
  const std::string conflict = ConflictOf(*settings, more);
  if (!conflict.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameters.", conflict, " has two values in the configuration of ", source));
  }
  settings->MergeFrom(more);
  return absl::OkStatus();
}

absl::StatusOr<Settings> SettingsOf(const Json& claim, const std::string& request) {
  Settings settings;
  const Json& entries = At(claim, "status", "allocation", "devices", "config");
  for (const Json& entry : List(entries)) {
    if (At(entry, "opaque", "driver") != kDriver || !AppliesTo(entry, request)) continue;
    const bool of_class = At(entry, "source") == "FromClass";
    const std::string source = of_class ? "the DeviceClass" : "the claim";
    absl::StatusOr<TenantSetting> parsed =
        ParseParameters(At(entry, "opaque", "parameters"), "parameters", Typed::kYes);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("the configuration of ", source, ": ",
                                                     std::string(parsed.status().message())));
    }
    DETSHARE_RETURN_IF_ERROR(
        Add(*parsed, source, of_class ? &settings.of_class : &settings.of_claim));
  }
  return settings;
}

// The settings of the annotation; none without one.
absl::StatusOr<TenantSetting> AnnotationOf(const Json& claim) {
  const Json& annotation = At(claim, "metadata", "annotations", kParametersAnnotation);
  if (annotation.is_null()) return TenantSetting();
  const std::string where = absl::StrCat("annotation ", kParametersAnnotation);
  const std::string text = Text(annotation);
  if (text.size() > kMaxParameters)
    return absl::InvalidArgumentError(absl::StrCat(where, " has more than 10 KiB"));
  const Json parameters = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parameters.is_discarded())
    return absl::InvalidArgumentError(absl::StrCat(where, " is no JSON"));
  absl::StatusOr<TenantSetting> parsed = ParseParameters(parameters, "parameters", Typed::kNo);
  if (parsed.ok()) return parsed;
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": ", std::string(parsed.status().message())));
}

// Every field is set. The daemon would keep the earlier value of a missing field.
TenantSetting Complete(const Consumed& consumed, const TenantSetting& settings) {
  TenantSetting tenant;
  tenant.set_tenant_class("unset");
  tenant.set_weight(1);
  tenant.set_exclusive(false);
  tenant.set_memory(static_cast<uint64_t>(consumed.memory));
  tenant.set_min_sms(static_cast<int32_t>(consumed.multiprocessors));
  tenant.set_max_sms(0);
  tenant.set_pinned_memory(0);
  tenant.set_slo_latency_ns(0);
  tenant.set_slo_ttft_ns(0);
  tenant.set_slo_tpot_ns(0);
  tenant.MergeFrom(settings);
  return tenant;
}

// The pods for which the claim is reserved: its only pod, or the namespace of several.
proto::Owner OwnerOf(const Json& claim) {
  proto::Owner owner;
  owner.set_namespace_(Text(At(claim, "metadata", "namespace")));
  const Json& consumers = At(claim, "status", "reservedFor");
  if (consumers.is_array() && consumers.size() == 1 && At(consumers[0], "resource") == "pods")
    owner.set_pod(Text(At(consumers[0], "name")));
  // An owner is for display, so one that the daemon would not take is left out.
  return CheckOwner(owner).ok() ? owner : proto::Owner();
}

const Gpu* GpuOf(const std::vector<Gpu>& gpus, const std::string& device) {
  const auto found = std::find_if(gpus.begin(), gpus.end(),
                                  [&](const Gpu& gpu) { return DeviceName(gpu.uuid) == device; });
  return found != gpus.end() ? &*found : nullptr;
}

absl::StatusOr<TenantSetting> TenantOf(const Json& claim, const Consumed& consumed,
                                       const record::PreparedClaim& prepared) {
  DETSHARE_ASSIGN_OR_RETURN(const TenantSetting annotation, AnnotationOf(claim));
  std::optional<TenantSetting> tenant;
  for (const record::AllocatedDevice& device : prepared.devices()) {
    DETSHARE_ASSIGN_OR_RETURN(Settings settings, SettingsOf(claim, device.request()));
    settings.of_claim.MergeFrom(annotation);
    const std::string fixed = ConflictOf(settings.of_class, settings.of_claim);
    if (!fixed.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameters.", fixed, ": the DeviceClass sets it, and a claim cannot change it"));
    }
    settings.of_class.MergeFrom(settings.of_claim);
    TenantSetting one = Complete(consumed, settings.of_class);
    if (tenant.has_value() && ConflictOf(*tenant, one) != "") {
      return absl::InvalidArgumentError(
          absl::StrCat("parameters.", ConflictOf(*tenant, one), " differs between requests ",
                       prepared.devices(0).request(), " and ", device.request(),
                       ": a claim has one set of parameters. Make a claim for each"));
    }
    tenant = std::move(one);
  }
  if (tenant->max_sms() != 0 && tenant->max_sms() < tenant->min_sms()) {
    return absl::InvalidArgumentError(absl::StrCat("parameters.maxMultiprocessors is ",
                                                   tenant->max_sms(), ", but the claim has ",
                                                   tenant->min_sms(), " multiprocessors"));
  }
  return *tenant;
}

}  // namespace

std::string DeviceName(const std::string& uuid) {
  std::string name;
  for (const char c : absl::AsciiStrToLower(uuid).substr(0, kLongestLabel))
    name.push_back(absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '-');
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name;
}

std::string EndpointName(const std::string& uid) { return absl::StrCat(kEndpointPrefix, uid); }
bool IsClaimEndpoint(const std::string& name) { return absl::StartsWith(name, kEndpointPrefix); }

absl::StatusOr<record::PreparedClaim> ReadClaim(const Json& claim, const std::string& pool,
                                                const std::vector<Gpu>& gpus) {
  record::PreparedClaim prepared;
  prepared.set_namespace_(Text(At(claim, "metadata", "namespace")));
  prepared.set_name(Text(At(claim, "metadata", "name")));
  prepared.set_uid(Text(At(claim, "metadata", "uid")));
  if (!IsUid(prepared.uid()))
    return absl::InvalidArgumentError("metadata.uid is missing or strange");
  const Json& results = At(claim, "status", "allocation", "devices", "results");
  std::map<std::string, Consumed> consumed;  // by UUID
  for (const Json& result : List(results)) {
    if (At(result, "driver") != kDriver) continue;
    const std::string device = Text(At(result, "device"));
    const std::string where = absl::StrCat("device ", absl::CHexEscape(device.substr(0, 64)));
    if (At(result, "pool") != pool) {
      return absl::FailedPreconditionError(
          absl::StrCat(where, " is of another node's pool, not of ", pool));
    }
    if (At(result, "adminAccess") == true) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": adminAccess is not supported; detsharectl status shows a GPU's use"));
    }
    const Gpu* const gpu = GpuOf(gpus, device);
    if (gpu == nullptr)
      return absl::NotFoundError(absl::StrCat(where, " is no GPU that the daemon has"));
    record::AllocatedDevice& allocated = *prepared.add_devices();
    allocated.set_request(Text(At(result, "request")));
    allocated.set_device(device);
    allocated.set_share_id(Text(At(result, "shareID")));
    DETSHARE_ASSIGN_OR_RETURN(const int64_t memory, CapacityOf(result, kMemory));
    DETSHARE_ASSIGN_OR_RETURN(const int64_t sms, CapacityOf(result, kMultiprocessors));
    Consumed& here = consumed[gpu->uuid];
    // The scheduler does not allocate more than the GPU has.
    if (memory > static_cast<int64_t>(gpu->memory) - here.memory ||
        sms > static_cast<int64_t>(gpu->sm_count) - here.multiprocessors) {
      return absl::InvalidArgumentError(
          absl::StrCat("status.allocation: more is consumed than ", where, " has"));
    }
    here.memory += memory;
    here.multiprocessors += sms;
    if (std::count(prepared.endpoint().device_ids().begin(), prepared.endpoint().device_ids().end(),
                   gpu->uuid) == 0)
      prepared.mutable_endpoint()->add_device_ids(gpu->uuid);
  }
  if (prepared.devices().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the claim has no allocated device of driver ", kDriver));
  }
  const Consumed& first = consumed.begin()->second;
  for (const auto& [uuid, other] : consumed) {
    if (other == first) continue;
    return absl::InvalidArgumentError(
        "the claim consumes different capacities of its GPUs, but a claim has the same limits on "
        "each GPU. Make a claim for each");
  }
  DETSHARE_ASSIGN_OR_RETURN(*prepared.mutable_endpoint()->mutable_tenant(),
                            TenantOf(claim, first, prepared));
  prepared.mutable_endpoint()->set_name(EndpointName(prepared.uid()));
  prepared.mutable_endpoint()->set_allocator(kClaimAllocator);
  *prepared.mutable_endpoint()->mutable_owner() = OwnerOf(claim);
  return prepared;
}

}  // namespace detshare::kubernetes
