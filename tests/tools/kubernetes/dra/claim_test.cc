#include "tools/kubernetes/dra/claim.h"

#include <catch2/catch.hpp>

namespace detshare::kubernetes {
namespace {

using Json = nlohmann::json;

constexpr char kUuid[] = "GPU-AB000000-0000-0000-0000-000000000001";
constexpr char kOther[] = "GPU-ab000000-0000-0000-0000-000000000002";

std::vector<Gpu> Gpus() {
  Gpu one;
  one.uuid = kUuid;
  one.memory = 80ull << 30;
  one.sm_count = 132;
  one.healthy = true;
  Gpu two = one;
  two.uuid = kOther;
  return {one, two};
}

Json Result(const std::string& request, const std::string& uuid, const Json& consumed) {
  return {{"request", request},         {"driver", kDriver},  {"pool", "node-1"},
          {"device", DeviceName(uuid)}, {"shareID", "share"}, {"consumedCapacity", consumed}};
}

Json Config(const std::string& source, Json parameters,
            const std::vector<std::string>& requests = {}) {
  parameters["apiVersion"] = "gpu.detshare.io/v1alpha1";
  parameters["kind"] = "ClaimParameters";
  return {{"source", source},
          {"requests", requests},
          {"opaque", {{"driver", kDriver}, {"parameters", parameters}}}};
}

// Lists are vectors: Json{one} is a copy of `one`, and no list.
Json Claim(const std::vector<Json>& results, const std::vector<Json>& config = {}) {
  return {
      {"metadata", {{"namespace", "ml"}, {"name", "chat"}, {"uid", "0f1e-2d"}}},
      {"status",
       {{"allocation", {{"devices", {{"results", results}, {"config", config}}}}},
        {"reservedFor", Json::array({{{"resource", "pods"}, {"name", "chat-0"}, {"uid", "p"}}})}}}};
}

Json Simple(const std::vector<Json>& config = {}) {
  return Claim(
      {Result("gpu", kUuid, {{"memory", "20Gi"}, {"multiprocessors", "32"}, {"places", "1"}})},
      config);
}

std::string ClaimError(const Json& claim) {
  const auto read = ReadClaim(claim, "node-1", Gpus());
  CHECK_FALSE(read.ok());
  return std::string(read.status().message());
}

TEST_CASE("A claim is one tenant with the capacities that it consumes and its parameters") {
  const auto claim = ReadClaim(Simple({Config("FromClaim", {{"class", "latency"}, {"weight", 3}})}),
                               "node-1", Gpus());
  REQUIRE(claim.ok());
  CHECK(claim->namespace_() == "ml");
  CHECK(claim->name() == "chat");
  const proto::TenantEndpoint& endpoint = claim->endpoint();
  CHECK(endpoint.name() == "claim-0f1e-2d");
  CHECK(endpoint.allocator() == kClaimAllocator);
  REQUIRE(endpoint.device_ids_size() == 1);
  CHECK(endpoint.device_ids(0) == kUuid);
  CHECK(endpoint.tenant().tenant_class() == "latency");
  CHECK(endpoint.tenant().weight() == 3);
  CHECK(endpoint.tenant().memory() == 20ull << 30);
  CHECK(endpoint.tenant().min_sms() == 32);
  CHECK(endpoint.tenant().has_max_sms());  // every field is set
  CHECK(endpoint.owner().namespace_() == "ml");
  CHECK(endpoint.owner().pod() == "chat-0");
  REQUIRE(claim->devices_size() == 1);
  CHECK(claim->devices(0).request() == "gpu");
  CHECK(claim->devices(0).device() == "gpu-ab000000-0000-0000-0000-000000000001");
}

TEST_CASE("Without consumable capacity a claim has its GPU without limits") {
  const auto claim = ReadClaim(Claim({Result("gpu", kUuid, nullptr)}), "node-1", Gpus());
  REQUIRE(claim.ok());
  CHECK(claim->endpoint().tenant().memory() == 0);
  CHECK(claim->endpoint().tenant().min_sms() == 0);
}

TEST_CASE("A capacity may have the driver's name before its own") {
  const auto claim = ReadClaim(Claim({Result("gpu", kUuid, {{"gpu.detshare.io/memory", "1Gi"}})}),
                               "node-1", Gpus());
  REQUIRE(claim.ok());
  CHECK(claim->endpoint().tenant().memory() == 1ull << 30);
}

TEST_CASE("Requests on one GPU add up, and requests on several GPUs must be equal") {
  const Json ten = {{"memory", "10Gi"}, {"multiprocessors", "8"}};
  const auto added =
      ReadClaim(Claim({Result("a", kUuid, ten), Result("b", kUuid, ten)}), "node-1", Gpus());
  REQUIRE(added.ok());
  CHECK(added->endpoint().tenant().memory() == 20ull << 30);
  CHECK(added->endpoint().tenant().min_sms() == 16);
  CHECK(added->endpoint().device_ids_size() == 1);
  const auto two =
      ReadClaim(Claim({Result("a", kUuid, ten), Result("a", kOther, ten)}), "node-1", Gpus());
  REQUIRE(two.ok());
  CHECK(two->endpoint().tenant().memory() == 10ull << 30);
  CHECK(two->endpoint().device_ids_size() == 2);
  CHECK(ClaimError(Claim({Result("a", kUuid, ten), Result("b", kOther, {{"memory", "1Gi"}})})) ==
        "the claim consumes different capacities of its GPUs, but a claim has the same limits on "
        "each GPU. Make a claim for each");
}

TEST_CASE("Devices of other drivers and their configuration are not looked at") {
  Json other = Result("nic", "GPU-x", {{"memory", "no"}});
  other["driver"] = "nic.example.com";
  Json claim = Simple({Config("FromClaim", {{"class", "batch"}})});
  claim["status"]["allocation"]["devices"]["results"].push_back(other);
  claim["status"]["allocation"]["devices"]["config"].push_back(
      {{"source", "FromClaim"}, {"opaque", {{"driver", "nic.example.com"}, {"parameters", 1}}}});
  const auto read = ReadClaim(claim, "node-1", Gpus());
  REQUIRE(read.ok());
  CHECK(read->devices_size() == 1);
}

TEST_CASE("What the DeviceClass sets, a claim cannot change") {
  CHECK(ClaimError(Simple({Config("FromClass", {{"class", "batch"}}),
                           Config("FromClaim", {{"class", "latency"}})})) ==
        "parameters.class: the DeviceClass sets it, and a claim cannot change it");
  const auto read = ReadClaim(Simple({Config("FromClass", {{"class", "batch"}}),
                                      Config("FromClaim", {{"class", "batch"}, {"weight", 2}})}),
                              "node-1", Gpus());
  REQUIRE(read.ok());
  CHECK(read->endpoint().tenant().weight() == 2);
  Json annotated = Simple({Config("FromClass", {{"class", "batch"}})});
  annotated["metadata"]["annotations"][kParametersAnnotation] = R"({"class": "latency"})";
  CHECK(ClaimError(annotated) ==
        "parameters.class: the DeviceClass sets it, and a claim cannot change it");
}

TEST_CASE("The annotation replaces parameters of the claim") {
  Json claim = Simple({Config("FromClaim", {{"class", "batch"}, {"weight", 2}})});
  claim["metadata"]["annotations"][kParametersAnnotation] = R"({"weight": 5})";
  const auto read = ReadClaim(claim, "node-1", Gpus());
  REQUIRE(read.ok());
  CHECK(read->endpoint().tenant().weight() == 5);
  CHECK(read->endpoint().tenant().tenant_class() == "batch");
  claim["metadata"]["annotations"][kParametersAnnotation] = "weight=5";
  CHECK(ClaimError(claim) == "annotation gpu.detshare.io/parameters is no JSON");
  claim["metadata"]["annotations"][kParametersAnnotation] = R"({"wait": 5})";
  CHECK(ClaimError(claim).find("annotation gpu.detshare.io/parameters: parameters has no field "
                               "\"wait\"") == 0);
}

TEST_CASE("Configuration applies to its requests, and all requests lead to one set of settings") {
  const Json one = {{"memory", "1Gi"}};
  const std::vector<Json> results = {Result("a", kUuid, one), Result("b/large", kOther, one)};
  CHECK(ClaimError(Claim(results, {Config("FromClaim", {{"weight", 2}}, {"a"})})) ==
        "parameters.weight differs between requests a and b/large: a claim has one set of "
        "parameters. Make a claim for each");
  CHECK(ReadClaim(Claim(results, {Config("FromClaim", {{"weight", 2}}, {"a", "b"})}), "node-1",
                  Gpus())
            .ok());
  CHECK(ReadClaim(Claim(results, {Config("FromClaim", {{"weight", 2}}, {"a"}),
                                  Config("FromClaim", {{"weight", 2}}, {"b/large"})}),
                  "node-1", Gpus())
            .ok());
  CHECK(ClaimError(
            Simple({Config("FromClaim", {{"weight", 2}}), Config("FromClaim", {{"weight", 3}})})) ==
        "parameters.weight has two values in the configuration of the claim");
}

TEST_CASE("Parameters that contradict the capacities are refused") {
  CHECK(ClaimError(Simple({Config("FromClaim", {{"maxMultiprocessors", 16}})})) ==
        "parameters.maxMultiprocessors is 16, but the claim has 32 multiprocessors");
}

TEST_CASE("A claim that this node cannot serve is refused with the reason") {
  CHECK(ClaimError(Json::object()) == "metadata.uid is missing or strange");
  CHECK(ClaimError({{"metadata", {{"uid", "../x"}}}}) == "metadata.uid is missing or strange");
  CHECK(ClaimError(Claim({})) == "the claim has no allocated device of driver gpu.detshare.io");
  CHECK(ClaimError(Claim({Result("gpu", "GPU-gone", Json::object())})) ==
        "device gpu-gone is no GPU that the daemon has");
  Json elsewhere = Result("gpu", kUuid, Json::object());
  elsewhere["pool"] = "node-2";
  CHECK(ClaimError(Claim({elsewhere})).find("is of another node's pool, not of node-1") !=
        std::string::npos);
  Json admin = Result("gpu", kUuid, Json::object());
  admin["adminAccess"] = true;
  CHECK(ClaimError(Claim({admin})).find("adminAccess is not supported") != std::string::npos);
  CHECK(ClaimError(Claim({Result("gpu", kUuid, {{"memory", "81Gi"}})}))
            .find("more is consumed than") != std::string::npos);
  CHECK(ClaimError(Claim({Result("gpu", kUuid, {{"memory", true}})})) ==
        "status.allocation: consumedCapacity.memory is no quantity");
}

TEST_CASE("A device has the UUID as a DNS label") {
  CHECK(DeviceName("GPU-AB12-cd") == "gpu-ab12-cd");
  CHECK(DeviceName("MIG-GPU-1/2/3") == "mig-gpu-1-2-3");
  CHECK(DeviceName(std::string(62, 'a') + "-b").size() == 62);
}

}  // namespace
}  // namespace detshare::kubernetes
