// The device plugin between a kubelet that speaks the real API, a real daemon with software GPUs,
// and containers that get exactly what the plugin's reply names.
#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "proto/admin.grpc.pb.h"
#include "proto/owner.h"
#include "tests/tools/kubernetes/host_fixture.h"
#include "tests/tools/kubernetes/kubelet_stand_in.h"

namespace detshare::kubernetes {
namespace {

using Devices = KubeletStandIn::Devices;

Container ContainerOf(const v1beta1::ContainerAllocateResponse& response) {
  Container container;
  for (const v1beta1::Mount& mount : response.mounts())
    container.mounts.push_back({mount.host_path(), mount.container_path(), mount.read_only()});
  for (const auto& [name, value] : response.envs())
    container.environment.push_back(name + "=" + value);
  return container;
}

// A host with kubelet's directory.
struct Node : Host {
  Node() {
    fs::create_directories(path + "/plugins");
    kubelet = std::make_unique<KubeletStandIn>(path + "/plugins");
  }
  ~Node() {
    INFO("daemon:\n"
         << (daemon ? daemon->log() : "") << "plugin:\n"
         << (plugin ? plugin->log() : ""));
    CHECK(kubelet->problems() == "");
    plugin.reset();
    kubelet.reset();
  }

  void StartPlugin(const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {FromEnvironment("PLUGIN"),
                                        "--socket",
                                        socket(),
                                        "--library-dir",
                                        path + "/lib",
                                        "--kubelet-dir",
                                        path + "/plugins",
                                        "--pod-resources",
                                        path + "/pod-resources.sock",
                                        "--cdi-dir",
                                        path + "/cdi",
                                        "--poll-ms",
                                        "50",
                                        "--resource",
                                        "gpu-share,shares=4",
                                        "--resource",
                                        "gpu-share-latency,shares=2,class=latency,slo-tpot=40ms"};
    command.insert(command.end(), more.begin(), more.end());
    plugin = std::make_unique<Process>(command, path + "/plugin.log");
  }
  std::vector<std::string> AwaitHealthy(const std::string& resource, size_t count) {
    return kubelet
        ->Await(resource,
                [&](const Devices& devices) {
                  return devices.healthy.size() == count && devices.unhealthy.empty();
                })
        .healthy;
  }

  // Waits until the only endpoint has this owner.
  void AwaitOwner(const std::string& owner) {
    std::string now = "no endpoint";
    for (int i = 0; i < 600 && now != owner; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const proto::EndpointList endpoints = Endpoints();
      if (endpoints.endpoints_size() == 1) now = OwnerText(endpoints.endpoints(0).owner());
    }
    CHECK(now == owner);
  }

  std::unique_ptr<Process> plugin;
  PodResourcesStandIn pods;
  std::unique_ptr<KubeletStandIn> kubelet;
};

const std::string kPlain = "detshare.io/gpu-share", kLatency = "detshare.io/gpu-share-latency";

TEST_CASE("A container with a share runs CUDA programs as its tenant, and has nothing but mounts") {
  Node node;
  node.StartDaemon();
  node.kubelet->Start();
  node.StartPlugin();
  CHECK(node.AwaitHealthy(kPlain, 8).size() == 8);
  const std::vector<std::string> shares = node.AwaitHealthy(kLatency, 4);
  const std::vector<std::string> chosen = node.kubelet->Preferred(kLatency, shares, 2);
  REQUIRE(chosen.size() == 2);
  CHECK(chosen[0].substr(0, 36) == chosen[1].substr(0, 36));  // both of one GPU

  v1beta1::AllocateResponse response;
  REQUIRE(node.kubelet->Allocate(kLatency, {chosen, {shares[2]}}, &response).ok());
  REQUIRE(response.container_responses_size() == 2);
  const v1beta1::ContainerAllocateResponse& first = response.container_responses(0);
  CHECK(first.devices_size() == 0);
  CHECK(first.cdi_devices_size() == 0);
  CHECK(first.envs().at("NVIDIA_VISIBLE_DEVICES") == "void");
  CHECK(first.mounts(0).host_path() != response.container_responses(1).mounts(0).host_path());
  CHECK(first.mounts(0).container_path() == "/run/detshare");
  REQUIRE(node.kubelet->PreStart(kLatency, chosen).ok());
  CHECK(node.Run(ContainerOf(first)) == Node::Expected());

  bool said = false;
  const proto::Tenants tenants = node.Tenants();
  for (const proto::TenantSetting& tenant : tenants.tenants()) {
    if (tenant.name() != "gpu-share-latency." + std::min(chosen[0], chosen[1])) continue;
    said = true;
    CHECK(tenant.tenant_class() == "latency");
    CHECK(tenant.weight() == 2);
    CHECK(tenant.slo_tpot_ns() == 40'000'000);
    CHECK(tenant.memory() == 256 << 20);  // two of two shares of one GPU
  }
  CHECK(said);

  // A container that starts again gets a new endpoint at the same place.
  const std::string endpoint = first.mounts(0).host_path();
  std::ofstream(endpoint + "/left") << "x";
  REQUIRE(node.kubelet->PreStart(kLatency, chosen).ok());
  CHECK_FALSE(fs::exists(endpoint + "/left"));
  CHECK(node.Run(ContainerOf(first)) == Node::Expected());
}

TEST_CASE("An unknown share is not allocated and breaks nothing") {
  Node node;
  node.StartDaemon();
  node.kubelet->Start();
  node.StartPlugin();
  const std::vector<std::string> shares = node.AwaitHealthy(kPlain, 8);
  const std::string latency = node.AwaitHealthy(kLatency, 4).back();
  v1beta1::AllocateResponse response;
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {""},
                                                       {"../../../etc"},
                                                       {shares[0], shares[0]},
                                                       {shares[0], "x"},
                                                       {shares[0] + "0"},
                                                       {std::string(1 << 20, 'x')},
                                                       std::vector<std::string>(5000, shares[0])};
  for (const std::vector<std::string>& ids : wrong) {
    CHECK(node.kubelet->Allocate(kPlain, {ids}, &response).error_code() ==
          grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(node.kubelet->Allocate(kPlain, {{shares[1]}, ids}, &response).error_code() ==
          grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(node.kubelet->PreStart(kPlain, ids).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  }
  CHECK(node.kubelet->Preferred(kPlain, {"x", ""}, 1000000).empty());
  CHECK(node.kubelet->Preferred(kPlain, shares, -5).empty());
  // A refused allocation opens no endpoint.
  CHECK(fs::is_empty(node.path + "/run/endpoints"));
  CHECK(node.kubelet->Allocate(kPlain, {{shares[0]}}, &response).ok());
  CHECK(node.kubelet->Allocate(kLatency, {{latency}}, &response).ok());
}

TEST_CASE("A kubelet that restarts or starts late finds the plugin") {
  Node node;
  node.StartDaemon();
  node.StartPlugin();  // before there is a kubelet
  node.kubelet->Start();
  node.AwaitHealthy(kPlain, 8);
  node.AwaitHealthy(kLatency, 4);
  for (int i = 0; i < 3; ++i) {
    node.kubelet->Stop();
    node.kubelet->Start();
    node.AwaitHealthy(kPlain, 8);
    const std::vector<std::string> shares = node.AwaitHealthy(kLatency, 4);
    v1beta1::AllocateResponse response;
    CHECK(node.kubelet->Allocate(kLatency, {{shares[0]}}, &response).ok());
  }
  CHECK(node.kubelet->registrations() >= 8);
}

TEST_CASE("Without a kubelet the plugin waits quietly, also without kubelet's directory") {
  Node node;
  node.StartDaemon();
  fs::remove(node.path + "/plugins");
  node.StartPlugin();
  const auto lines = [&] {
    const std::string log = node.plugin->log();
    return std::count(log.begin(), log.end(), '\n');
  };
  // One line about the daemon, one about kubelet and one about its pods. The plugin looks 20 times a
  // second.
  for (int i = 0; i < 600 && lines() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  INFO(node.plugin->log());
  CHECK(lines() <= 4);  // the daemon may have been missing first
  CHECK(node.plugin->log().find("waiting for kubelet") != std::string::npos);
  fs::create_directories(node.path + "/plugins");
  node.kubelet->Start();
  node.AwaitHealthy(kPlain, 8);
}

TEST_CASE("Without its daemon a GPU's shares are unhealthy, and healthy when it is back") {
  Node node;
  node.kubelet->Start();
  node.StartPlugin();
  // The plugin does not offer GPUs that it has not seen.
  node.kubelet->Await(kPlain, [](const Devices& devices) {
    return devices.healthy.empty() && devices.unhealthy.empty();
  });
  node.StartDaemon();
  const std::vector<std::string> shares = node.AwaitHealthy(kPlain, 8);
  v1beta1::AllocateResponse response;
  REQUIRE(node.kubelet->Allocate(kPlain, {{shares[5]}}, &response).ok());
  REQUIRE(node.kubelet->PreStart(kPlain, {shares[5]}).ok());
  const Container container = ContainerOf(response.container_responses(0));
  CHECK(node.Run(container) == Node::Expected());

  node.daemon->End(SIGKILL);
  node.kubelet->Await(kPlain, [](const Devices& devices) {
    return devices.healthy.empty() && devices.unhealthy.size() == 8;
  });
  const grpc::Status refused = node.kubelet->PreStart(kPlain, {shares[5]});
  CHECK(refused.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK_THAT(refused.error_message(), Catch::Contains("no detshared replies"));
  node.StartDaemon();
  node.AwaitHealthy(kPlain, 8);
  // A container that already has its endpoint mounted goes on. It is not started again.
  CHECK(node.Run(container) == Node::Expected());
}

TEST_CASE("A plugin that is killed comes back, and containers do not notice") {
  Node node;
  node.StartDaemon();
  node.kubelet->Start();
  node.StartPlugin();
  const std::vector<std::string> shares = node.AwaitHealthy(kLatency, 4);
  v1beta1::AllocateResponse response;
  REQUIRE(node.kubelet->Allocate(kLatency, {{shares[3]}}, &response).ok());
  REQUIRE(node.kubelet->PreStart(kLatency, {shares[3]}).ok());
  const Container container = ContainerOf(response.container_responses(0));
  node.plugin->End(SIGKILL);
  node.kubelet->Await(kLatency, [](const Devices& devices) { return devices.healthy.empty(); });
  CHECK(node.Run(container) == Node::Expected());
  node.StartPlugin();
  CHECK(node.AwaitHealthy(kLatency, 4) == shares);
  CHECK(node.Run(container) == Node::Expected());
  CHECK(node.plugin->End(SIGTERM) == 0);
  CHECK_FALSE(fs::exists(node.path + "/plugins/detshare-gpu-share.sock"));
}

TEST_CASE("With CDI a container gets a device by name, which the specification describes") {
  Node node;
  node.StartDaemon();
  node.kubelet->Start();
  node.StartPlugin({"--inject", "cdi"});
  const std::vector<std::string> shares = node.AwaitHealthy(kPlain, 8);
  v1beta1::AllocateResponse response;
  REQUIRE(node.kubelet->Allocate(kPlain, {{shares[7]}}, &response).ok());
  const v1beta1::ContainerAllocateResponse& container = response.container_responses(0);
  CHECK(container.mounts_size() == 0);
  CHECK(container.envs_size() == 0);
  REQUIRE(container.cdi_devices_size() == 1);
  REQUIRE(node.kubelet->PreStart(kPlain, {shares[7]}).ok());
  std::ifstream stream(node.path + "/cdi/detshare.json");
  const nlohmann::json spec = nlohmann::json::parse(stream);
  CHECK(spec["devices"].size() == 12);
  CHECK(node.Run(CdiContainer(spec, container.cdi_devices(0).name())) == Node::Expected());
}

TEST_CASE("A container sees exactly the GPUs that it has") {
  Node node;
  node.StartDaemon();
  node.kubelet->Start();
  node.StartPlugin();
  const std::vector<std::string> shares = node.AwaitHealthy(kLatency, 4);
  v1beta1::AllocateResponse response;
  const std::vector<std::string> both = {shares[0], shares[3]};
  REQUIRE(node.kubelet->Allocate(kLatency, {both, {shares[1]}}, &response).ok());
  REQUIRE(node.kubelet->PreStart(kLatency, both).ok());
  REQUIRE(node.kubelet->PreStart(kLatency, {shares[1]}).ok());
  const proto::EndpointList endpoints = node.Endpoints();
  REQUIRE(endpoints.endpoints_size() == 2);
  for (const proto::TenantEndpoint& endpoint : endpoints.endpoints()) {
    CHECK(endpoint.device_ids_size() ==
          (endpoint.name() == "gpu-share-latency." + shares[0] ? 2 : 1));
  }
}

v1::ListPodResourcesResponse OnePod(const std::string& name, const std::vector<std::string>& ids) {
  v1::ListPodResourcesResponse pods;
  v1::PodResources* const pod = pods.add_pod_resources();
  pod->set_name(name);
  pod->set_namespace_("models");
  v1::ContainerResources* const container = pod->add_containers();
  container->set_name("server");
  v1::ContainerDevices* const devices = container->add_devices();
  devices->set_resource_name(kLatency);
  for (const std::string& id : ids) devices->add_device_ids(id);
  return pods;
}

TEST_CASE("The plugin tells the daemon which pod has a share, also if kubelet says it later") {
  Node node;
  node.StartDaemon();
  node.kubelet->Start();
  node.StartPlugin();
  const std::vector<std::string> shares = node.AwaitHealthy(kLatency, 4);
  const std::vector<std::string> both = {shares[1], shares[0]};
  // Kubelet does not serve the API yet. The plugin says so once, and goes on.
  REQUIRE(node.kubelet->PreStart(kLatency, both).ok());
  const std::string line = "there is no " + node.path + "/pod-resources.sock";
  const auto count = [&] {
    const std::string log = node.plugin->log();
    size_t lines = 0;
    for (size_t at = log.find(line); at != std::string::npos; at = log.find(line, at + 1)) ++lines;
    return lines;
  };
  for (int i = 0; i < 600 && count() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(count() == 1);
  node.AwaitOwner("");

  node.pods.Set(OnePod("chat-0", both));
  node.pods.Start(node.path + "/pod-resources.sock");
  node.AwaitOwner("models/chat-0/server");
  CHECK(count() == 1);
  // Another pod has the shares afterwards.
  node.pods.Set(OnePod("chat-1", both));
  REQUIRE(node.kubelet->PreStart(kLatency, both).ok());
  node.AwaitOwner("models/chat-1/server");
  // A plugin that is started again finds what has changed meanwhile.
  node.plugin->End(SIGKILL);
  node.pods.Set({});
  node.StartPlugin();
  node.AwaitOwner("");
}

TEST_CASE("Shares of a GPU of which another program allocates parts are unhealthy, and refused") {
  Node node;
  node.StartDaemon();
  node.kubelet->Start();
  node.StartPlugin();
  const std::vector<std::string> shares = node.AwaitHealthy(kPlain, 8);
  v1beta1::AllocateResponse response;
  REQUIRE(node.kubelet->Allocate(kPlain, {{shares[0]}}, &response).ok());

  proto::TenantEndpoint claim;
  claim.set_name("claim-1");
  claim.set_allocator("detshare-dra-driver");
  claim.add_device_ids(node.Status().devices(0).uuid());
  REQUIRE(node.Open(claim).ok());
  // Kubelet has allocated the share already, but the container does not start.
  const grpc::Status refused = node.kubelet->PreStart(kPlain, {shares[0]});
  CHECK(refused.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(refused.error_message().find("belongs to detshare-dra-driver") != std::string::npos);
  node.kubelet->Await(kPlain, [](const Devices& devices) {
    return devices.healthy.size() == 4 && devices.unhealthy.size() == 4;
  });
  CHECK(node.kubelet->PreStart(kPlain, {shares[7]}).ok());  // of the other GPU
}

TEST_CASE("The plugin refuses what it cannot offer") {
  Node node;
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--resource", "gpu-share"},
        std::vector<std::string>{"--resource", "x,shares=0"},
        std::vector<std::string>{"--inject", "both"}, std::vector<std::string>{"--poll-ms", "0"},
        std::vector<std::string>{"--socket", "run.sock"}}) {
    node.StartPlugin(wrong);
    CHECK(WEXITSTATUS(node.plugin->End(0)) != 0);
  }
}

}  // namespace
}  // namespace detshare::kubernetes
