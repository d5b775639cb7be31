// A host with a real daemon on software GPUs, and containers that get exactly what a plugin's reply
// names.
#pragma once

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "proto/admin.grpc.pb.h"
#include "proto/tenant_endpoint.grpc.pb.h"

namespace detshare::kubernetes {

namespace fs = std::filesystem;

inline std::string FromEnvironment(const char* name) {
  const char* const value = getenv(name);
  REQUIRE(value != nullptr);
  return fs::canonical(value).string();
}

// A program that runs as long as this object lives.
class Process {
 public:
  Process(const std::vector<std::string>& command, const std::string& log) : log_(log) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    // Not fork(): other threads of the test may hold locks that the child would need.
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    REQUIRE(posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&files);
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

// Applies the CDI specification's edits for one device, as a runtime does.
inline Container CdiContainer(const nlohmann::json& spec, const std::string& device) {
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

// A daemon with two software GPUs, and the libraries for containers.
struct Host {
  Host() {
    char pattern[] = "/tmp/ds-k8s-XXXXXX";
    path = mkdtemp(pattern);
    fs::create_directories(path + "/lib");
    // Files, as on a node, and not links into a build folder.
    std::istringstream libraries(getenv("SHIMS"));
    for (std::string library; libraries >> library;) {
      const std::string name = fs::path(library).filename();
      if (name == "libcuda.so.1" || name == "libnvidia-ml.so.1")
        fs::copy_file(fs::canonical(library), path + "/lib/" + name);
    }
  }
  ~Host() {
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

  grpc::Status Open(const proto::TenantEndpoint& endpoint) {
    grpc::ClientContext context;
    proto::OpenedEndpoint opened;
    return proto::TenantEndpoints::NewStub(
               grpc::CreateChannel("unix:" + socket(), grpc::InsecureChannelCredentials()))
        ->OpenEndpoint(&context, endpoint, &opened);
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
  std::unique_ptr<Process> daemon;
};

}  // namespace detshare::kubernetes
