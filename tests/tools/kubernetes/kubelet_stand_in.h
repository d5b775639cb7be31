// A kubelet as device plugins see it: the real API on real sockets, with kubelet's checks.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tools/kubernetes/device_plugin.grpc.pb.h"
#include "tools/kubernetes/pod_resources.grpc.pb.h"

namespace detshare::kubernetes {

// Serves which devices the containers have, as kubelet does.
class PodResourcesStandIn final : public v1::PodResourcesLister::Service {
 public:
  ~PodResourcesStandIn() { Stop(); }

  void Start(const std::string& socket) {
    std::filesystem::remove(socket);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  // Replaces the pods.
  void Set(v1::ListPodResourcesResponse pods) {
    const std::lock_guard<std::mutex> lock(mutex_);
    pods_ = std::move(pods);
  }

  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* pods) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    *pods = pods_;
    return grpc::Status::OK;
  }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  v1::ListPodResourcesResponse pods_;
};

class KubeletStandIn final : public v1beta1::Registration::Service {
 public:
  explicit KubeletStandIn(std::string directory) : directory_(std::move(directory)) {}
  ~KubeletStandIn() { Stop(); }

  // Does what kubelet does when it starts: removes the sockets that it finds, then listens. It
  // knows no plugin.
  void Start() {
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (entry.is_socket()) std::filesystem::remove(entry.path());
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + directory_ + "/kubelet.sock",
                             grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  void Stop() {
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now());
      server_.reset();
    }
    std::map<std::string, std::unique_ptr<Plugin>> plugins;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      plugins.swap(plugins_);
      retired_.swap(leaving_);
    }
    for (auto& [name, plugin] : plugins) End(*plugin);
    for (auto& plugin : leaving_) End(*plugin);
    leaving_.clear();
  }

  // The healthy and unhealthy devices of a resource, as the plugin last listed them.
  struct Devices {
    std::vector<std::string> healthy, unhealthy;
  };
  // Waits until the resource is registered and its devices are as wanted.
  Devices Await(const std::string& resource, const std::function<bool(const Devices&)>& wanted) {
    std::unique_lock<std::mutex> lock(mutex_);
    Devices devices;
    const bool came = changed_.wait_for(lock, std::chrono::seconds(60), [&] {
      const auto found = plugins_.find(resource);
      if (found == plugins_.end() || !found->second->listed) return false;
      devices = found->second->devices;
      return wanted(devices);
    });
    INFO("waiting for devices of " << resource << ": " << devices.healthy.size() << " healthy, "
                                   << devices.unhealthy.size() << " unhealthy");
    REQUIRE(came);
    return devices;
  }

  int registrations() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return registrations_;
  }
  std::string problems() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return problems_;
  }

  grpc::Status Allocate(const std::string& resource,
                        const std::vector<std::vector<std::string>>& containers,
                        v1beta1::AllocateResponse* response) {
    v1beta1::AllocateRequest request;
    for (const auto& ids : containers) {
      auto* const one = request.add_container_requests();
      for (const std::string& id : ids) one->add_devices_ids(id);
    }
    grpc::ClientContext context;
    return StubOf(resource)->Allocate(&context, request, response);
  }
  grpc::Status PreStart(const std::string& resource, const std::vector<std::string>& ids) {
    v1beta1::PreStartContainerRequest request;
    for (const std::string& id : ids) request.add_devices_ids(id);
    v1beta1::PreStartContainerResponse response;
    grpc::ClientContext context;
    // Kubelet's own timeout.
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return StubOf(resource)->PreStartContainer(&context, request, &response);
  }
  std::vector<std::string> Preferred(const std::string& resource,
                                     const std::vector<std::string>& available, int size) {
    v1beta1::PreferredAllocationRequest request;
    auto* const one = request.add_container_requests();
    for (const std::string& id : available) one->add_available_deviceids(id);
    one->set_allocation_size(size);
    v1beta1::PreferredAllocationResponse response;
    grpc::ClientContext context;
    REQUIRE(StubOf(resource)->GetPreferredAllocation(&context, request, &response).ok());
    REQUIRE(response.container_responses_size() == 1);
    const auto& ids = response.container_responses(0).deviceids();
    return {ids.begin(), ids.end()};
  }

  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    const std::string path = directory_ + "/" + request->endpoint();
    struct stat status;
    std::string problem;
    if (request->version() != "v1beta1") problem = "version " + request->version();
    if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode))
      problem = "nothing listens at " + path;
    if (request->resource_name().find('/') == std::string::npos ||
        request->resource_name().find("kubernetes.io/") != std::string::npos)
      problem = "no extended resource: " + request->resource_name();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!problem.empty()) {
      problems_ += problem + "\n";
      return {grpc::StatusCode::INVALID_ARGUMENT, problem};
    }
    ++registrations_;
    auto plugin = std::make_unique<Plugin>();
    plugin->options = request->options();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    plugin->stub = v1beta1::DevicePlugin::NewStub(
        grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments));
    Plugin* const started = plugin.get();
    plugin->thread = std::thread([this, started] { Listen(*started); });
    std::unique_ptr<Plugin>& place = plugins_[request->resource_name()];
    if (place != nullptr) retired_.push_back(std::move(place));
    place = std::move(plugin);
    changed_.notify_all();
    return grpc::Status::OK;
  }

 private:
  struct Plugin {
    v1beta1::DevicePluginOptions options;
    std::unique_ptr<v1beta1::DevicePlugin::Stub> stub;
    grpc::ClientContext context;
    std::thread thread;
    bool listed = false;  // the fields below are guarded by mutex_
    Devices devices;
  };

  v1beta1::DevicePlugin::Stub* StubOf(const std::string& resource) {
    const std::lock_guard<std::mutex> lock(mutex_);
    REQUIRE(plugins_.count(resource) == 1);
    return plugins_.at(resource)->stub.get();
  }

  void Listen(Plugin& plugin) {
    v1beta1::DevicePluginOptions options;
    {
      grpc::ClientContext context;
      const grpc::Status status = plugin.stub->GetDevicePluginOptions(&context, {}, &options);
      const std::lock_guard<std::mutex> lock(mutex_);
      // The plugin may have ended. The end of its list tells that.
      const bool gone = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                        status.error_code() == grpc::StatusCode::CANCELLED;
      if (!gone &&
          (!status.ok() || options.SerializeAsString() != plugin.options.SerializeAsString()))
        problems_ += "options differ: " + status.error_message() + "\n";
    }
    auto reader = plugin.stub->ListAndWatch(&plugin.context, {});
    v1beta1::ListAndWatchResponse list;
    while (reader->Read(&list)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      plugin.devices = {};
      std::set<std::string> ids;
      for (const v1beta1::Device& device : list.devices()) {
        if (device.id().empty() || device.id().size() > 63 || !ids.insert(device.id()).second)
          problems_ += "id " + device.id() + "\n";
        if (device.health() != "Healthy" && device.health() != "Unhealthy")
          problems_ += "health " + device.health() + "\n";
        auto& place =
            device.health() == "Healthy" ? plugin.devices.healthy : plugin.devices.unhealthy;
        place.push_back(device.id());
      }
      plugin.listed = true;
      changed_.notify_all();
    }
    (void)reader->Finish();
    // Kubelet does this, too, when a plugin's stream ends.
    const std::lock_guard<std::mutex> lock(mutex_);
    plugin.devices.unhealthy.insert(plugin.devices.unhealthy.end(), plugin.devices.healthy.begin(),
                                    plugin.devices.healthy.end());
    plugin.devices.healthy.clear();
    changed_.notify_all();
  }

  void End(Plugin& plugin) {
    plugin.context.TryCancel();
    plugin.thread.join();
  }

  const std::string directory_;
  std::unique_ptr<grpc::Server> server_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<Plugin>> plugins_;  // by resource
  std::vector<std::unique_ptr<Plugin>> retired_;            // another registration has replaced
                                                            // them
  std::vector<std::unique_ptr<Plugin>> leaving_;
  int registrations_ = 0;
  std::string problems_;
};

}  // namespace detshare::kubernetes
