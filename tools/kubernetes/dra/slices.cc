#include "tools/kubernetes/dra/slices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/kubernetes/dra/claim.h"
#include "tools/kubernetes/dra/json_path.h"
#include "tools/kubernetes/dra/quantity.h"

namespace detshare::kubernetes {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestAttribute = 64;
constexpr int64_t kMebibyte = 1 << 20;
constexpr uint64_t kLeastMemory = 2 * kMebibyte;  // the least that a claim gets, and one step more

// The value that a claim gets of the memory if it requests none: an equal part for each place.
int64_t DefaultMemory(const Gpu& gpu, int places) {
  const int64_t part = static_cast<int64_t>(gpu.memory) / places / kMebibyte * kMebibyte;
  return std::max(part, kMebibyte);
}

Json Capacity(const std::string& value, const std::string& by_default, Json range) {
  return {{"value", value},
          {"requestPolicy", {{"default", by_default}, {"validRange", std::move(range)}}}};
}

Json Taint(const char* key, const std::string& value, const char* effect) {
  Json taint = {{"key", key}, {"effect", effect}};
  if (!value.empty()) taint["value"] = value;
  return taint;
}

Json TaintsOf(const Gpu& gpu, bool reachable) {
  Json taints = Json::array();
  // Its programs have failed, so Kubernetes may end their pods and start them elsewhere.
  if (reachable && !gpu.healthy) taints.push_back(Taint(kTaintLost, "", "NoExecute"));
  // A daemon that restarts is back soon, and programs may go on.
  if (!reachable) taints.push_back(Taint(kTaintUnreachable, "", "NoSchedule"));
  if (!gpu.allocator.empty() && gpu.allocator != kClaimAllocator)
    taints.push_back(Taint(kTaintAllocator, gpu.allocator, "NoSchedule"));
  return taints;
}

Json DeviceOf(const Gpu& gpu, const SliceOptions& options) {
  Json attributes = {{"uuid", {{"string", gpu.uuid.substr(0, kLongestAttribute)}}},
                     {"productName", {{"string", gpu.name.substr(0, kLongestAttribute)}}},
                     {"cudaComputeCapability",
                      {{"version", absl::StrCat(gpu.compute_major, ".", gpu.compute_minor, ".0")}}},
                     // 13000 is 13.0.
                     {"cudaDriverVersion",
                      {{"version", absl::StrCat(gpu.driver_version / 1000, ".",
                                                gpu.driver_version % 1000 / 10, ".0")}}}};
  Json capacity = {{kMemory, Capacity(BinaryQuantity(static_cast<int64_t>(gpu.memory)),
                                      BinaryQuantity(DefaultMemory(gpu, options.places)),
                                      {{"min", "1Mi"}, {"step", "1Mi"}})},
                   // Without a request, no multiprocessors are guaranteed.
                   {kMultiprocessors, Capacity(absl::StrCat(gpu.sm_count), "0", {{"min", "0"}})},
                   {kPlaces, Capacity(absl::StrCat(options.places), "1", {{"min", "1"}})}};
  return {{"name", DeviceName(gpu.uuid)},
          {"attributes", std::move(attributes)},
          {"capacity", std::move(capacity)},
          {"allowMultipleAllocations", true}};
}

// The spec without what SameOffer() does not look at.
Json OfferOf(Json spec) {
  if (spec.is_object() && spec.contains("pool") && spec["pool"].is_object())
    spec["pool"].erase("generation");
  if (!spec.is_object() || !spec.contains("devices") || !spec["devices"].is_array()) return spec;
  for (Json& device : spec["devices"]) {
    if (!device.is_object() || !device.contains("taints") || !device["taints"].is_array()) continue;
    for (Json& taint : device["taints"]) {
      if (taint.is_object()) taint.erase("timeAdded");
    }
  }
  return spec;
}

const Json& Member(const Json& list, const char* key, const Json& value) {
  static const Json none;
  if (!list.is_array()) return none;
  const auto found = std::find_if(list.begin(), list.end(),
                                  [&](const Json& one) { return At(one, key) == value; });
  return found != list.end() ? *found : none;
}

}  // namespace

Json SliceSpec(const std::vector<Gpu>& gpus, bool reachable, const SliceOptions& options,
               int64_t generation) {
  Json devices = Json::array();
  for (const Gpu& gpu : gpus) {
    // A GPU of unknown size cannot be described.
    if (devices.size() == kMaxDevices || gpu.memory < kLeastMemory) continue;
    Json taints = TaintsOf(gpu, reachable);
    if (!taints.empty() && !options.taints) continue;
    Json device = DeviceOf(gpu, options);
    if (!taints.empty()) device["taints"] = std::move(taints);
    devices.push_back(std::move(device));
  }
  return {{"driver", kDriver},
          {"nodeName", options.node},
          {"pool", {{"name", options.node}, {"generation", generation}, {"resourceSliceCount", 1}}},
          {"devices", std::move(devices)}};
}

bool SameOffer(const Json& a, const Json& b) { return OfferOf(a) == OfferOf(b); }

void KeepTaintTimes(const Json& before, Json* spec) {
  for (Json& device : (*spec)["devices"]) {
    if (!device.contains("taints")) continue;
    const Json& old = Member(At(before, "devices"), "name", device["name"]);
    for (Json& taint : device["taints"]) {
      const Json& same = Member(At(old, "taints"), "key", taint["key"]);
      if (!At(same, "timeAdded").is_null()) taint["timeAdded"] = same["timeAdded"];
    }
  }
}

}  // namespace detshare::kubernetes
