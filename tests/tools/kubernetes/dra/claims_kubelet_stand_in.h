// A kubelet as drivers of claims see it: finds the registration socket, registers the driver with
// kubelet's checks, and calls it.
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
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tools/kubernetes/dra/dra_health.grpc.pb.h"
#include "tools/kubernetes/dra/dra_v1.grpc.pb.h"
#include "tools/kubernetes/dra/dra_v1beta1.grpc.pb.h"
#include "tools/kubernetes/dra/plugin_registration.grpc.pb.h"

namespace detshare::kubernetes {

namespace dra = k8s::io::kubelet::pkg::apis::dra::v1;

class ClaimsKubeletStandIn {
 public:
  explicit ClaimsKubeletStandIn(std::string directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_ + "/plugins_registry");
  }
  ~ClaimsKubeletStandIn() { Forget(); }

  // Waits for the driver's registration, as a kubelet that has just started does.
  void Register() {
    Forget();
    const std::string socket = directory_ + "/plugins_registry/gpu.detshare.io-reg.sock";
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    pluginregistration::PluginInfo info;
    std::shared_ptr<grpc::Channel> channel;
    grpc::Status status;
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (!std::filesystem::is_socket(socket)) continue;
      channel = Connect(socket);
      grpc::ClientContext context;
      status = pluginregistration::Registration::NewStub(channel)->GetInfo(&context, {}, &info);
      if (status.ok() && std::filesystem::is_socket(info.endpoint())) break;
    } while (std::chrono::steady_clock::now() < end);
    REQUIRE(status.ok());
    CHECK(info.type() == "DRAPlugin");
    CHECK(info.name() == "gpu.detshare.io");
    REQUIRE(std::filesystem::is_socket(info.endpoint()));
    const auto& versions = info.supported_versions();
    for (const char* service : {"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"})
      CHECK(std::count(versions.begin(), versions.end(), service) == 1);
    pluginregistration::RegistrationStatus registered;
    registered.set_plugin_registered(true);
    pluginregistration::RegistrationStatusResponse reply;
    grpc::ClientContext context;
    REQUIRE(pluginregistration::Registration::NewStub(channel)
                ->NotifyRegistrationStatus(&context, registered, &reply)
                .ok());
    channel_ = Connect(info.endpoint());
    health_context_ = std::make_unique<grpc::ClientContext>();
    health_ = std::thread([this] { WatchHealth(); });
  }

  dra::NodePrepareResourceResponse Prepare(const dra::Claim& claim, bool v1beta1 = false) {
    dra::NodePrepareResourcesRequest request;
    *request.add_claims() = claim;
    dra::NodePrepareResourcesResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(45));
    const grpc::Status status =
        v1beta1
            ? k8s::io::kubelet::pkg::apis::dra::v1beta1::DRAPlugin::NewStub(channel_)
                  ->NodePrepareResources(&context, request, &response)
            : dra::DRAPlugin::NewStub(channel_)->NodePrepareResources(&context, request, &response);
    INFO(status.error_message());
    REQUIRE(status.ok());
    REQUIRE(response.claims().count(claim.uid()) == 1);
    return response.claims().at(claim.uid());
  }
  // Returns the error; "": done.
  std::string Unprepare(const dra::Claim& claim) {
    dra::NodeUnprepareResourcesRequest request;
    *request.add_claims() = claim;
    dra::NodeUnprepareResourcesResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(45));
    REQUIRE(dra::DRAPlugin::NewStub(channel_)
                ->NodeUnprepareResources(&context, request, &response)
                .ok());
    REQUIRE(response.claims().count(claim.uid()) == 1);
    return response.claims().at(claim.uid()).error();
  }

  // Waits until the devices' health is as wanted.
  void AwaitHealth(const std::function<bool(const v1alpha1::NodeWatchResourcesResponse&)>& wanted) {
    std::unique_lock<std::mutex> lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(60),
                              [&] { return latest_.has_value() && wanted(*latest_); }));
  }

 private:
  static std::shared_ptr<grpc::Channel> Connect(const std::string& socket) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  void WatchHealth() {
    auto stub = v1alpha1::DRAResourceHealth::NewStub(channel_);
    auto reader = stub->NodeWatchResources(health_context_.get(), {});
    v1alpha1::NodeWatchResourcesResponse list;
    while (reader->Read(&list)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      latest_ = list;
      changed_.notify_all();
    }
    (void)reader->Finish();
  }
  void Forget() {
    if (health_context_ != nullptr) health_context_->TryCancel();
    if (health_.joinable()) health_.join();
    const std::lock_guard<std::mutex> lock(mutex_);
    latest_.reset();
  }

  const std::string directory_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientContext> health_context_;
  std::thread health_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1alpha1::NodeWatchResourcesResponse> latest_;
};

}  // namespace detshare::kubernetes
