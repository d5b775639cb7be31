// The driver between a kubelet and an API server that speak the real APIs, a real daemon with
// software GPUs, and containers that get exactly what the driver's reply names.
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/tools/kubernetes/dra/api_server_stand_in.h"
#include "tests/tools/kubernetes/dra/claims_kubelet_stand_in.h"
#include "tests/tools/kubernetes/host_fixture.h"
#include "tests/tools/kubernetes/kubelet_stand_in.h"

namespace detshare::kubernetes {
namespace {

using Json = nlohmann::json;

constexpr char kDriver[] = "gpu.detshare.io";
const std::string kClaims = ApiServerStandIn::ClaimsOf("ml");

// A daemon whose second GPU can be lost, which software GPUs cannot. It opens no endpoints.
class LossyDaemon final : public proto::Admin::Service {
 public:
  explicit LossyDaemon(const std::string& socket) {
    fs::create_directories(fs::path(socket).parent_path());
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    builder.RegisterService(&endpoints_);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~LossyDaemon() { server_->Shutdown(std::chrono::system_clock::now()); }

  std::atomic<bool> lost{false};

  grpc::Status GetStatus(grpc::ServerContext*, const proto::GetStatusRequest*,
                         proto::Status* status) override {
    for (const char* uuid :
         {"GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002"}) {
      proto::DeviceStatus& device = *status->add_devices();
      const bool is_lost = lost && status->devices_size() == 2;
      device.set_uuid(uuid);
      device.set_name("NVIDIA H100");
      device.set_state(is_lost ? "the GPU has fallen off the bus" : "ok");
      // A lost GPU does not tell what it is.
      if (is_lost) continue;
      device.set_sm_count(132);
      device.set_total_memory(80ull << 30);
    }
    return grpc::Status::OK;
  }

 private:
  class Endpoints final : public proto::TenantEndpoints::Service {
    grpc::Status GetEndpoints(grpc::ServerContext*, const proto::GetEndpointsRequest*,
                              proto::EndpointList*) override {
      return grpc::Status::OK;
    }
  };

  Endpoints endpoints_;
  std::unique_ptr<grpc::Server> server_;
};

// A node "node-1" of a cluster.
struct ClaimNode : Host {
  ClaimNode() {
    fs::create_directories(path + "/api");
    api = std::make_unique<ApiServerStandIn>(path + "/api");
    api->Put("/api/v1/nodes", {{"metadata", {{"name", "node-1"}}}});
    kubelet = std::make_unique<ClaimsKubeletStandIn>(path + "/kubelet");
  }
  ~ClaimNode() {
    INFO("daemon:\n"
         << (daemon ? daemon->log() : "") << "driver:\n"
         << (driver ? driver->log() : ""));
    CHECK(api->problems() == "");
    driver.reset();
    kubelet.reset();
    daemon.reset();
    api.reset();
  }

  void StartDriver(const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {FromEnvironment("DRIVER"),
                                        "--node-name",
                                        "node-1",
                                        "--places",
                                        "4",
                                        "--socket",
                                        socket(),
                                        "--library-dir",
                                        path + "/lib",
                                        "--kubelet-dir",
                                        path + "/kubelet",
                                        "--cdi-dir",
                                        path + "/cdi",
                                        "--api-server",
                                        api->url(),
                                        "--token-file",
                                        api->token_file(),
                                        "--ca-file",
                                        api->ca_file(),
                                        "--poll-ms",
                                        "50"};
    command.insert(command.end(), more.begin(), more.end());
    driver = std::make_unique<Process>(command, path + "/driver.log");
  }
  void Start() {
    StartDaemon();
    StartDriver();
    AwaitSlice([](const Json& devices) { return devices.size() == 2; });
    kubelet->Register();
  }

  void RestartDaemon() {
    StartDaemon();
    Eventually([&] {
      grpc::ClientContext context;
      proto::Status status;
      return proto::Admin::NewStub(
                 grpc::CreateChannel("unix:" + socket(), grpc::InsecureChannelCredentials()))
          ->GetStatus(&context, {}, &status)
          .ok();
    });
  }

  // Waits until the slice's devices are as wanted, and returns its spec.
  Json AwaitSlice(const std::function<bool(const Json& devices)>& wanted) {
    const Json slice = api->Await(ApiServerStandIn::kSlices,
                                  [&](const Json& one) { return wanted(one["spec"]["devices"]); });
    INFO("driver:\n" << (driver ? driver->log() : ""));
    REQUIRE_FALSE(slice.is_null());
    return slice["spec"];
  }
  static bool AllTainted(const Json& devices, const std::string& key) {
    return devices.size() == 2 && std::all_of(devices.begin(), devices.end(), [&](const Json& one) {
             return one.value("taints", Json::array()).size() == 1 &&
                    one["taints"][0]["key"] == key;
           });
  }
  static bool NoneTainted(const Json& devices) {
    return devices.size() == 2 && std::none_of(devices.begin(), devices.end(), [](const Json& one) {
             return one.contains("taints");
           });
  }

  // Makes a claim as the scheduler leaves it, with one device, and returns what kubelet calls it.
  dra::Claim MakeClaim(const std::string& name, int gpu, const Json& parameters = nullptr,
                       const Json& consumed = {{"memory", "64Mi"}, {"places", "1"}}) {
    Json config = Json::array();
    if (!parameters.is_null()) {
      Json typed = parameters;
      typed["apiVersion"] = "gpu.detshare.io/v1alpha1";
      typed["kind"] = "ClaimParameters";
      config.push_back(
          {{"source", "FromClaim"}, {"opaque", {{"driver", kDriver}, {"parameters", typed}}}});
    }
    const std::string device =
        AwaitSlice([](const Json& devices) { return devices.size() == 2; })["devices"][gpu]["name"];
    const Json result = {{"request", "gpu"},     {"driver", kDriver},
                         {"pool", "node-1"},     {"device", device},
                         {"shareID", "share-1"}, {"consumedCapacity", consumed}};
    const Json stored = api->Put(
        kClaims,
        {{"metadata", {{"namespace", "ml"}, {"name", name}}},
         {"status",
          {{"allocation", {{"devices", {{"results", Json::array({result})}, {"config", config}}}}},
           {"reservedFor",
            Json::array({{{"resource", "pods"}, {"name", name + "-pod"}, {"uid", "p"}}})}}}});
    dra::Claim claim;
    claim.set_namespace_("ml");
    claim.set_name(name);
    claim.set_uid(stored["metadata"]["uid"]);
    return claim;
  }
  void Annotate(const std::string& name, const std::string& parameters) {
    Json claim =
        api->Await(kClaims, [&](const Json& one) { return one["metadata"]["name"] == name; });
    REQUIRE_FALSE(claim.is_null());
    claim["metadata"]["annotations"]["gpu.detshare.io/parameters"] = parameters;
    api->Put(kClaims, claim);
  }

  // Waits for a condition in the status of a claim's only device.
  void AwaitCondition(const std::string& claim, const std::string& type, const std::string& status,
                      const std::string& message) {
    const Json found = api->Await(kClaims, [&](const Json& one) {
      if (one["metadata"]["name"] != claim || !one["status"].contains("devices")) return false;
      const Json& device = one["status"]["devices"][0];
      if (one["status"]["devices"].size() != 1 || device["driver"] != kDriver ||
          device["shareID"] != "share-1")
        return false;
      return std::any_of(device["conditions"].begin(), device["conditions"].end(),
                         [&](const Json& condition) {
                           return condition["type"] == type && condition["status"] == status &&
                                  condition["message"].get<std::string>().find(message) == 0 &&
                                  condition.contains("lastTransitionTime");
                         });
    });
    INFO("driver:\n" << driver->log());
    REQUIRE_FALSE(found.is_null());
  }

  // What a container runtime gives to a container with the claim.
  Container ContainerOf(const dra::NodePrepareResourceResponse& prepared) {
    REQUIRE(prepared.error() == "");
    REQUIRE(prepared.devices_size() >= 1);
    REQUIRE(prepared.devices(0).cdi_device_ids_size() == 1);
    std::ifstream stream(path + "/cdi/detshare-claims.json");
    return CdiContainer(Json::parse(stream), prepared.devices(0).cdi_device_ids(0));
  }
  proto::TenantSetting Tenant(const dra::Claim& claim) {
    const proto::Tenants tenants = Tenants();
    for (const proto::TenantSetting& tenant : tenants.tenants()) {
      if (tenant.name() == "claim-" + claim.uid()) return tenant;
    }
    return {};
  }
  template <typename Done>
  void Eventually(Done done) {
    for (int i = 0; i < 3000 && !done(); ++i) usleep(20'000);
    INFO("driver:\n" << (driver ? driver->log() : ""));
    REQUIRE(done());
  }

  std::unique_ptr<Process> driver;
  std::unique_ptr<ApiServerStandIn> api;
  std::unique_ptr<ClaimsKubeletStandIn> kubelet;
};

TEST_CASE("A pod with a claim runs CUDA programs with the claim's capacities and parameters") {
  ClaimNode node;
  node.Start();
  const Json spec = node.AwaitSlice(ClaimNode::NoneTainted);
  CHECK(spec["driver"] == kDriver);
  CHECK(spec["nodeName"] == "node-1");
  CHECK(spec["devices"][0]["capacity"]["memory"]["value"] == "256Mi");
  CHECK(spec["devices"][0]["capacity"]["memory"]["requestPolicy"]["default"] == "64Mi");
  CHECK(spec["devices"][0]["allowMultipleAllocations"] == true);

  const Json parameters = {{"class", "latency"}, {"weight", 2}, {"objectives", {{"tpot", "40ms"}}}};
  const dra::Claim chat =
      node.MakeClaim("chat", 0, parameters, {{"memory", "64Mi"}, {"multiprocessors", "2"}});
  const dra::Claim train = node.MakeClaim("train", 0);
  const auto prepared = node.kubelet->Prepare(chat);
  CHECK(prepared.error() == "");
  REQUIRE(prepared.devices_size() == 1);
  CHECK(prepared.devices(0).pool_name() == "node-1");
  CHECK(prepared.devices(0).device_name() == spec["devices"][0]["name"]);
  CHECK(prepared.devices(0).request_names(0) == "gpu");
  const auto other = node.kubelet->Prepare(train, /*v1beta1=*/true);
  const Container container = node.ContainerOf(prepared);
  CHECK(container.mounts.back().host != node.ContainerOf(other).mounts.back().host);
  CHECK(node.Run(container) == Host::Expected());
  CHECK(node.Run(node.ContainerOf(other)) == Host::Expected());

  const proto::TenantSetting tenant = node.Tenant(chat);
  CHECK(tenant.tenant_class() == "latency");
  CHECK(tenant.weight() == 2);
  CHECK(tenant.slo_tpot_ns() == 40'000'000);
  CHECK(tenant.memory() == 64 << 20);
  CHECK(tenant.min_sms() == 2);
  const proto::EndpointList endpoints = node.Endpoints();
  REQUIRE(endpoints.endpoints_size() == 2);
  for (const proto::TenantEndpoint& endpoint : endpoints.endpoints()) {
    CHECK(endpoint.allocator() == "detshare-dra-driver");
    CHECK(endpoint.device_ids_size() == 1);
    CHECK(endpoint.owner().namespace_() == "ml");
  }

  // Another pod that uses the claim gets the same endpoint, with its sessions and files.
  std::ofstream(container.mounts.back().host + "/left") << "x";
  CHECK(node.kubelet->Prepare(chat).SerializeAsString() == prepared.SerializeAsString());
  CHECK(fs::exists(container.mounts.back().host + "/left"));

  node.AwaitCondition("chat", "Ready", "True", "endpoint claim-" + chat.uid());
  node.AwaitCondition("chat", "ParametersInForce", "True", "");
  node.Eventually([&] { return node.api->rights_used().count("watch resourceclaims") == 1; });
  CHECK(node.kubelet->Unprepare(chat) == "");
  CHECK(node.kubelet->Unprepare(chat) == "");  // kubelet may say it twice
  CHECK_FALSE(fs::exists(container.mounts.back().host));
  CHECK(node.Endpoints().endpoints_size() == 1);
  CHECK(node.kubelet->Unprepare(train) == "");
  CHECK_FALSE(fs::exists(node.path + "/cdi/detshare-claims.json"));

  // The manifests grant these rights, and those of the test of slices.
  CHECK(node.api->rights_used() ==
        std::set<std::string>{"create resourceslices", "get nodes", "get resourceclaims",
                              "list resourceclaims", "list resourceslices",
                              "patch resourceclaims/status", "watch resourceclaims",
                              "watch resourceslices"});
}

TEST_CASE("A claim that cannot be prepared gets the reason, and opens nothing") {
  ClaimNode node;
  node.Start();
  const auto error = [&](const dra::Claim& claim) { return node.kubelet->Prepare(claim).error(); };
  const dra::Claim wrong = node.MakeClaim("wrong", 0, {{"class", "fast"}});
  CHECK(error(wrong) ==
        "claim ml/wrong: the configuration of the claim: parameters.class is latency or batch, not "
        "\"fast\"");
  dra::Claim gone = wrong;
  gone.set_name("gone");
  CHECK(error(gone).find("HTTP status 404") != std::string::npos);
  dra::Claim old = wrong;
  old.set_uid("uid-of-an-earlier-one");
  CHECK(error(old) ==
        "claim ml/wrong: the claim was deleted, and there is another one of its name");
  dra::Claim strange = wrong;
  strange.set_namespace_("../../nodes");
  CHECK(error(strange) != "");
  CHECK(error(dra::Claim()) != "");
  // The weight is one that only the daemon refuses.
  const dra::Claim heavy = node.MakeClaim("heavy", 0, {{"weight", 1e12}});
  CHECK(error(heavy).find("detshared: ") != std::string::npos);
  CHECK(node.Endpoints().endpoints_size() == 0);
  CHECK_FALSE(fs::exists(node.path + "/cdi/detshare-claims.json"));
  CHECK(node.kubelet->Prepare(node.MakeClaim("right", 0)).error() == "");
}

TEST_CASE("An API server that fails for a while only delays a claim") {
  ClaimNode node;
  node.Start();
  const dra::Claim claim = node.MakeClaim("chat", 1);
  node.api->FailNext(1, 503, -1, "get resourceclaims");
  CHECK(node.kubelet->Prepare(claim).error().find("HTTP status 503") != std::string::npos);
  node.api->FailNext(2, 429, 0, "get resourceclaims");
  node.api->RotateToken();
  CHECK(node.kubelet->Prepare(claim).error() == "");
  // A prepared claim needs no API server.
  node.api->FailNext(1000, 500);
  CHECK(node.kubelet->Prepare(claim).error() == "");
  CHECK(node.kubelet->Unprepare(claim) == "");
  node.api->FailNext(0, 0);
}

TEST_CASE("Parameters of the annotation take effect while the pod runs") {
  ClaimNode node;
  node.Start();
  const dra::Claim claim = node.MakeClaim("chat", 0, {{"weight", 2}});
  const Container container = node.ContainerOf(node.kubelet->Prepare(claim));
  std::ofstream(container.mounts.back().host + "/left") << "x";
  node.Annotate("chat", R"({"weight": 7, "class": "batch"})");
  node.Eventually([&] { return node.Tenant(claim).weight() == 7; });
  CHECK(node.Tenant(claim).tenant_class() == "batch");
  CHECK(fs::exists(container.mounts.back().host + "/left"));  // the endpoint is the same
  // A mistake changes nothing, and the log names it.
  node.Annotate("chat", R"({"wait": 7})");
  node.Eventually([&] {
    return node.driver->log().find(
               "claim ml/chat keeps its parameters: annotation "
               "gpu.detshare.io/parameters: parameters has no field \"wait\"") != std::string::npos;
  });
  CHECK(node.Tenant(claim).weight() == 7);
  node.AwaitCondition("chat", "ParametersInForce", "False",
                      "the earlier parameters stay in force: annotation "
                      "gpu.detshare.io/parameters: parameters has no field \"wait\"");
  // The change lasts, whoever restarts.
  node.driver->End(SIGKILL);
  node.daemon->End(SIGKILL);
  node.RestartDaemon();
  node.api->Put(kClaims, [&] {
    Json changed = node.api->List(kClaims)[0];
    changed["metadata"]["annotations"] = Json::object();
    return changed;
  }());
  node.StartDriver();
  node.Eventually([&] { return node.Tenant(claim).weight() == 2; });
}

TEST_CASE("Claims survive restarts of the driver, of the daemon and of kubelet") {
  ClaimNode node;
  node.Start();
  const dra::Claim claim = node.MakeClaim("chat", 0);
  const dra::Claim gone = node.MakeClaim("gone", 1);
  const auto prepared = node.kubelet->Prepare(claim);
  const Container container = node.ContainerOf(prepared);
  REQUIRE(node.kubelet->Prepare(gone).error() == "");
  const std::string slice = node.api->List(ApiServerStandIn::kSlices)[0]["metadata"]["name"];

  node.driver->End(SIGKILL);
  CHECK(node.Run(container) == Host::Expected());  // nobody notices
  node.api->Remove(kClaims, "gone");
  // An endpoint whose claim the driver had not yet written down.
  proto::TenantEndpoint stray;
  stray.set_name("claim-stray");
  stray.set_allocator("detshare-dra-driver");
  REQUIRE(node.Open(stray).ok());
  proto::TenantEndpoint mine;
  mine.set_name("claim-mine");
  REQUIRE(node.Open(mine).ok());
  node.StartDriver();
  node.kubelet->Register();
  CHECK(node.kubelet->Prepare(claim).SerializeAsString() == prepared.SerializeAsString());
  // The claim that is gone and the stray endpoint are closed; an operator's own stays.
  node.Eventually([&] { return node.Endpoints().endpoints_size() == 2; });
  CHECK(node.Run(container) == Host::Expected());
  CHECK(node.api->List(ApiServerStandIn::kSlices)[0]["metadata"]["name"] == slice);

  // A daemon that has lost its endpoints gets them again.
  node.daemon->End(SIGTERM);
  CHECK(node.kubelet->Prepare(node.MakeClaim("late", 0)).error().find("detshared: ") !=
        std::string::npos);
  fs::remove(node.path + "/run/endpoints/.list");
  node.RestartDaemon();
  node.Eventually([&] { return fs::exists(container.mounts.back().host + "/detshared.sock"); });
  node.Eventually([&] { return node.Endpoints().endpoints_size() == 1; });
  CHECK(node.Run(container) == Host::Expected());
  CHECK(node.Tenant(claim).memory() == 64 << 20);

  // A claim is unprepared without the daemon, and its endpoint goes when the daemon is back.
  node.daemon->End(SIGTERM);
  CHECK(node.kubelet->Unprepare(claim) == "");
  node.RestartDaemon();
  node.Eventually([&] { return node.Endpoints().endpoints_size() == 0; });
  CHECK(node.driver->End(SIGTERM) == 0);
}

TEST_CASE("A second driver of the node and a damaged file harm no pod") {
  ClaimNode node;
  node.Start();
  const dra::Claim claim = node.MakeClaim("chat", 0);
  const Container container = node.ContainerOf(node.kubelet->Prepare(claim));
  auto first = std::move(node.driver);
  node.StartDriver();
  CHECK(WEXITSTATUS(node.driver->End(0)) == 1);
  CHECK(node.driver->log().find("another detshare-dra-driver of this node uses") !=
        std::string::npos);
  first->End(SIGKILL);
  std::ofstream(node.path + "/kubelet/plugins/gpu.detshare.io/claims") << "claims {";
  node.StartDriver();
  node.kubelet->Register();
  CHECK(node.Run(container) == Host::Expected());
  CHECK(node.Endpoints().endpoints_size() == 1);
  // Kubelet prepares the claim again when it restarts.
  CHECK(node.Run(node.ContainerOf(node.kubelet->Prepare(claim))) == Host::Expected());
}

TEST_CASE("The slice is kept as the GPUs are, whatever others do with it") {
  ClaimNode node;
  node.Start();
  const std::string first = node.api->List(ApiServerStandIn::kSlices)[0]["metadata"]["name"];
  // Kubelet deletes all slices of its node when it starts.
  node.api->Remove(ApiServerStandIn::kSlices, first);
  node.AwaitSlice(ClaimNode::NoneTainted);
  // Somebody changes it, and there is a slice of an earlier name of the pool.
  Json slice = node.api->List(ApiServerStandIn::kSlices)[0];
  Json old = slice;
  old["metadata"] = {{"name", "old"}};
  old["spec"]["pool"]["name"] = "old-pool";
  node.api->Put(ApiServerStandIn::kSlices, old);
  slice["spec"]["devices"][0]["capacity"].erase("places");
  slice["spec"]["pool"]["generation"] = 40;
  node.api->Put(ApiServerStandIn::kSlices, slice);
  const Json spec = node.AwaitSlice([](const Json& devices) {
    return ClaimNode::NoneTainted(devices) && devices[0]["capacity"].contains("places");
  });
  node.Eventually([&] {
    const std::vector<Json> slices = node.api->List(ApiServerStandIn::kSlices);
    return slices.size() == 1 && slices[0]["spec"]["pool"]["generation"] == 41;
  });

  for (const char* right : {"update resourceslices", "delete resourceslices"})
    CHECK(node.api->rights_used().count(right) == 1);
  CHECK(node.api->rights_used().size() <= 7);

  // Conflicts and failures only delay it.
  node.api->ConflictNext(2);
  node.api->FailNext(3, 500);
  node.daemon->End(SIGTERM);
  const std::string unreachable = "gpu.detshare.io/daemon-unreachable";
  node.AwaitSlice([&](const Json& devices) { return ClaimNode::AllTainted(devices, unreachable); });
  node.kubelet->AwaitHealth([](const v1alpha1::NodeWatchResourcesResponse& list) {
    return list.devices_size() == 2 && list.devices(0).health() == v1alpha1::UNHEALTHY &&
           list.devices(0).message() == "detshared does not reply";
  });
  node.RestartDaemon();
  node.AwaitSlice(ClaimNode::NoneTainted);
  node.kubelet->AwaitHealth([](const v1alpha1::NodeWatchResourcesResponse& list) {
    return list.devices_size() == 2 && list.devices(0).health() == v1alpha1::HEALTHY &&
           list.devices(0).device().pool_name() == "node-1";
  });
}

TEST_CASE("A lost GPU gets a taint that ends its pods, and no claim, until it is back") {
  ClaimNode node;
  LossyDaemon daemon(node.socket());
  node.StartDriver();
  const Json whole = node.AwaitSlice(ClaimNode::NoneTainted);
  node.kubelet->Register();
  daemon.lost = true;
  const Json spec = node.AwaitSlice(
      [](const Json& devices) { return devices.size() == 2 && devices[1].contains("taints"); });
  CHECK_FALSE(spec["devices"][0].contains("taints"));
  REQUIRE(spec["devices"][1]["taints"].size() == 1);
  CHECK(spec["devices"][1]["taints"][0]["key"] == "gpu.detshare.io/lost");
  CHECK(spec["devices"][1]["taints"][0]["effect"] == "NoExecute");
  CHECK(spec["devices"][1]["capacity"] == whole["devices"][1]["capacity"]);
  node.kubelet->AwaitHealth([](const v1alpha1::NodeWatchResourcesResponse& list) {
    return list.devices_size() == 2 && list.devices(0).health() == v1alpha1::HEALTHY &&
           list.devices(1).health() == v1alpha1::UNHEALTHY &&
           list.devices(1).message() == "the GPU has fallen off the bus";
  });
  CHECK(
      node.kubelet->Prepare(node.MakeClaim("chat", 1)).error() ==
      "claim ml/chat: device gpu-00000000-0000-0000-0000-000000000002 cannot be used: the GPU has "
      "fallen off the bus");
  daemon.lost = false;
  CHECK(node.AwaitSlice(ClaimNode::NoneTainted)["devices"] == whole["devices"]);
}

TEST_CASE("On a server without taints, GPUs that cannot be had are left out") {
  ClaimNode node;
  node.api->DropTaints(true);
  node.Start();
  node.daemon->End(SIGTERM);
  node.AwaitSlice([](const Json& devices) { return devices.empty(); });
  node.RestartDaemon();
  node.AwaitSlice(ClaimNode::NoneTainted);
}

TEST_CASE(
    "On a server without shared devices the driver says so, and does not write again and again") {
  ClaimNode node;
  node.api->DropSharing(true);
  node.Start();
  node.Eventually([&] {
    return node.driver->log().find("Turn on the feature gate DRAConsumableCapacity") !=
           std::string::npos;
  });
  const Json before = node.api->List(ApiServerStandIn::kSlices)[0];
  node.api->EndWatches(ApiServerStandIn::End::kGone);
  node.Eventually([&] { return node.api->rights_used().count("watch resourceslices") == 1; });
  usleep(300'000);
  CHECK(node.api->List(ApiServerStandIn::kSlices)[0] == before);
}

TEST_CASE(
    "A GPU of the device plugin is not given to claims, and one of claims not to the plugin") {
  ClaimNode node;
  node.Start();
  const std::string uuid = node.Status().devices(0).uuid();
  proto::TenantEndpoint share;
  share.set_name("gpu-share.0");
  share.set_allocator("detshare-device-plugin");
  share.add_device_ids(uuid);
  REQUIRE(node.Open(share).ok());
  // The scheduler has not seen the taint yet.
  const dra::Claim claim = node.MakeClaim("chat", 0);
  CHECK(node.kubelet->Prepare(claim).error().find("its device belongs to detshare-device-plugin") !=
        std::string::npos);
  CHECK(node.kubelet->Prepare(node.MakeClaim("train", 1)).error() == "");
  node.AwaitSlice([](const Json& devices) {
    return devices.size() == 2 && devices[0].contains("taints") &&
           devices[0]["taints"][0]["key"] == "gpu.detshare.io/other-allocator" &&
           devices[0]["taints"][0]["value"] == "detshare-device-plugin" &&
           !devices[1].contains("taints");
  });
  // The other way round.
  share.set_name("gpu-share.1");
  share.set_device_ids(0, node.Status().devices(1).uuid());
  CHECK(node.Open(share).error_code() == grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_CASE("With plugin and driver on one node, the first container on a GPU decides whose it is") {
  ClaimNode node;
  node.Start();
  fs::create_directories(node.path + "/plugins");
  KubeletStandIn kubelet(node.path + "/plugins");
  kubelet.Start();
  const Process plugin({FromEnvironment("PLUGIN"), "--socket", node.socket(), "--library-dir",
                        node.path + "/lib", "--kubelet-dir", node.path + "/plugins", "--cdi-dir",
                        node.path + "/cdi", "--poll-ms", "50", "--resource", "gpu-share,shares=4"},
                       node.path + "/plugin.log");
  const std::string resource = "detshare.io/gpu-share";
  const auto healthy = [&](size_t count) {
    return kubelet
        .Await(resource,
               [&](const KubeletStandIn::Devices& devices) {
                 return devices.healthy.size() == count && devices.unhealthy.size() == 8 - count;
               })
        .healthy;
  };
  const std::vector<std::string> shares = healthy(8);
  const dra::Claim claim = node.MakeClaim("chat", 1);
  REQUIRE(node.kubelet->Prepare(claim).error() == "");
  CHECK(healthy(4) == std::vector<std::string>(shares.begin(), shares.begin() + 4));
  CHECK(kubelet.PreStart(resource, {shares[4]}).error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(kubelet.PreStart(resource, {shares[0]}).ok());
  CHECK(node.kubelet->Prepare(node.MakeClaim("train", 0)).error().find("belongs to") !=
        std::string::npos);
  // The GPU of a claim is free when the claim is.
  CHECK(node.kubelet->Unprepare(claim) == "");
  CHECK(healthy(8) == shares);
  CHECK(kubelet.PreStart(resource, {shares[4]}).ok());
}

TEST_CASE("The driver refuses to run without what it needs") {
  ClaimNode node;
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--node-name", ""}, std::vector<std::string>{"--places", "0"},
        std::vector<std::string>{"--socket", "run.sock"},
        std::vector<std::string>{"--api-server", "kubernetes"}}) {
    node.StartDriver(wrong);
    CHECK(WEXITSTATUS(node.driver->End(0)) != 0);
  }
}

}  // namespace
}  // namespace detshare::kubernetes
