// The device plugin between a kubelet that speaks the real API, a real daemon with software GPUs,
// and containers that get exactly what the plugin's reply names.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "proto/admin.grpc.pb.h"
#include "proto/owner.h"
#include "proto/tenant_endpoint.grpc.pb.h"
#include "tests/tools/kubernetes/kubelet_stand_in.h"

namespace detshare::kubernetes {
namespace {

namespace fs = std::filesystem;
using Devices = KubeletStandIn::Devices;

std::string FromEnvironment(const char* name) {
  const char* const value = getenv(name);
  REQUIRE(value != nullptr);
  return fs::canonical(value).string();
}

// A program that runs as long as this object lives.
class Process {
 public:
  Process(const std::vector<std::string>& command, const std::string& log) : log_(log) {
    pid_ = fork();
    if (pid_ == 0) {
      const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(fd, 1);
      dup2(fd, 2);
      std::vector<char*> argv;
      for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Process() { End(SIGTERM); }
  int End(int signal) {
    if (pid_ <= 0) return 0;
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }
  std::string log() const {
    std::ifstream stream(log_);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }

 private:
  const std::string log_;
  pid_t pid_ = 0;
};

// The instructions for a container runtime: mounts and environment.
struct Container {
  struct Mount {
    std::string host, container;
    bool read_only;
  };
  std::vector<Mount> mounts;
  std::vector<std::string> environment;
};

Container ContainerOf(const v1beta1::ContainerAllocateResponse& response) {
  Container container;
  for (const v1beta1::Mount& mount : response.mounts())
    container.mounts.push_back({mount.host_path(), mount.container_path(), mount.read_only()});
  for (const auto& [name, value] : response.envs())
    container.environment.push_back(name + "=" + value);
  return container;
}

// Applies the CDI specification's edits for one device, as a runtime does.
Container ContainerOf(const nlohmann::json& spec, const std::string& device) {
  Container container;
  const auto apply = [&](const nlohmann::json& edits) {
    for (const auto& mount : edits.value("mounts", nlohmann::json::array())) {
      const auto& options = mount["options"];
      container.mounts.push_back(
          {mount["hostPath"], mount["containerPath"],
           std::find(options.begin(), options.end(), "ro") != options.end()});
    }
    for (const auto& variable : edits.value("env", nlohmann::json::array()))
      container.environment.push_back(variable);
  };
  apply(spec["containerEdits"]);
  bool found = false;
  for (const auto& one : spec["devices"]) {
    if (spec["kind"].get<std::string>() + "=" + one["name"].get<std::string>() != device) continue;
    apply(one["containerEdits"]);
    found = true;
  }
  REQUIRE(found);
  return container;
}

// A node: a daemon with two software GPUs, and kubelet's directory.
struct Node {
  Node() {
    char pattern[] = "/tmp/ds-k8s-XXXXXX";
    path = mkdtemp(pattern);
    fs::create_directories(path + "/plugins");
    fs::create_directories(path + "/lib");
    // Files, as on a node, and not links into a build folder.
    std::istringstream libraries(getenv("SHIMS"));
    for (std::string library; libraries >> library;) {
      const std::string name = fs::path(library).filename();
      if (name == "libcuda.so.1" || name == "libnvidia-ml.so.1")
        fs::copy_file(fs::canonical(library), path + "/lib/" + name);
    }
    kubelet = std::make_unique<KubeletStandIn>(path + "/plugins");
  }
  ~Node() {
    INFO("daemon:\n"
         << (daemon ? daemon->log() : "") << "plugin:\n"
         << (plugin ? plugin->log() : ""));
    CHECK(kubelet->problems() == "");
    plugin.reset();
    kubelet.reset();
    daemon.reset();
    fs::remove_all(path);
  }

  std::string socket() const { return path + "/run/detshared.sock"; }
  void StartDaemon() {
    daemon = std::make_unique<Process>(
        std::vector<std::string>{FromEnvironment("DETSHARED"), "--socket", socket(), "--backend",
                                 "soft", "--soft-devices", "2", "--soft-memory", "256MiB",
                                 "--soft-threads", "2"},
        path + "/daemon.log");
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

  proto::Status Status() {
    grpc::ClientContext context;
    proto::Status status;
    REQUIRE(proto::Admin::NewStub(
                grpc::CreateChannel("unix:" + socket(), grpc::InsecureChannelCredentials()))
                ->GetStatus(&context, {}, &status)
                .ok());
    return status;
  }
  proto::Tenants Tenants() {
    grpc::ClientContext context;
    proto::Tenants tenants;
    REQUIRE(proto::Admin::NewStub(
                grpc::CreateChannel("unix:" + socket(), grpc::InsecureChannelCredentials()))
                ->GetTenants(&context, {}, &tenants)
                .ok());
    return tenants;
  }

  proto::EndpointList Endpoints() {
    grpc::ClientContext context;
    proto::EndpointList list;
    REQUIRE(proto::TenantEndpoints::NewStub(
                grpc::CreateChannel("unix:" + socket(), grpc::InsecureChannelCredentials()))
                ->GetEndpoints(&context, {}, &list)
                .ok());
    return list;
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

  // Runs a CUDA program in its own namespaces and root, which have only what `container` names.
  // Returns what it printed.
  std::string Run(const Container& container, const std::string& program = "PROGRAM") {
    std::ofstream list(path + "/mounts");
    for (const Container::Mount& mount : container.mounts)
      list << mount.host << " " << mount.container << " " << (mount.read_only ? "ro" : "rw")
           << "\n";
    list.close();
    std::ofstream environment(path + "/environment");
    for (const std::string& variable : container.environment) environment << variable << "\n";
    environment.close();
    const std::string output = path + "/output";
    const std::string command = FromEnvironment("RUN_CONTAINER") + " " + path + " " +
                                FromEnvironment(program.c_str()) + " >" + output + " 2>" + path +
                                "/errors";
    const int status = std::system(command.c_str());
    std::ifstream stream(output), errors(path + "/errors");
    std::ostringstream text, said;
    text << stream.rdbuf();
    said << errors.rdbuf();
    if (WEXITSTATUS(status) == 77) {
      WARN("NOT TESTED: no namespaces can be made here");
      return Expected();
    }
    INFO(said.str());
    CHECK(status == 0);
    return text.str();
  }
  static std::string Expected() {
    std::ifstream stream(FromEnvironment("EXPECTED"));
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }

  std::string path;
  std::unique_ptr<Process> daemon, plugin;
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
  CHECK(node.kubelet->PreStart(kPlain, {shares[5]}).error_code() == grpc::StatusCode::UNAVAILABLE);
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
  CHECK(node.Run(ContainerOf(spec, container.cdi_devices(0).name())) == Node::Expected());
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
  const auto count = [&] {
    const std::string log = node.plugin->log();
    size_t lines = 0;
    for (size_t at = log.find("pod-resources.sock"); at != std::string::npos;
         at = log.find("pod-resources.sock", at + 1))
      ++lines;
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
