#include "tools/kubernetes/share_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace detshare::kubernetes {
namespace {

// Kubelet asks for one pod at a time.
constexpr int kMaxContainers = 1024;
constexpr int kMaxIds = 4096;

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

grpc::Status TooMany() {
  return {grpc::StatusCode::INVALID_ARGUMENT, "too many containers or devices in one call"};
}

void FillIn(const std::vector<containers::BindMount>& mounts,
            v1beta1::ContainerAllocateResponse* response) {
  for (const containers::BindMount& mount : mounts) {
    v1beta1::Mount* const one = response->add_mounts();
    one->set_host_path(mount.host);
    one->set_container_path(mount.container);
    one->set_read_only(mount.read_only);
  }
}

}  // namespace

ShareService::ShareService(Resource resource, Options options, DaemonLink& daemon)
    : resource_(std::move(resource)), options_(std::move(options)), daemon_(daemon) {}

void ShareService::SetGpus(const std::vector<Gpu>& gpus) {
  const MutexLock lock(&mutex_);
  if (gpus == gpus_) return;
  gpus_ = gpus;
  v1beta1::ListAndWatchResponse list;
  for (const Share& share : SharesOf(resource_, gpus)) {
    v1beta1::Device* const device = list.add_devices();
    device->set_id(share.id);
    device->set_health(share.healthy ? "Healthy" : "Unhealthy");
  }
  streams_.Send(std::move(list));
}

std::vector<Share> ShareService::shares() const {
  const MutexLock lock(&mutex_);
  return SharesOf(resource_, gpus_);
}

v1beta1::DevicePluginOptions ShareService::PluginOptions() {
  v1beta1::DevicePluginOptions options;
  // PreStartContainer opens the container's tenant endpoint. Kubelet calls it also when the
  // container or the node restarts.
  options.set_pre_start_required(true);
  options.set_get_preferred_allocation_available(true);
  return options;
}

grpc::Status ShareService::GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                                  v1beta1::DevicePluginOptions* options) {
  *options = PluginOptions();
  return grpc::Status::OK;
}

grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* ShareService::ListAndWatch(
    grpc::CallbackServerContext*, const v1beta1::Empty*) {
  return streams_.Open();
}

grpc::Status ShareService::GetPreferredAllocation(
    grpc::ServerContext*, const v1beta1::PreferredAllocationRequest* request,
    v1beta1::PreferredAllocationResponse* response) {
  if (request->container_requests_size() > kMaxContainers) return TooMany();
  const std::vector<Share> shares = this->shares();
  for (const v1beta1::ContainerPreferredAllocationRequest& one : request->container_requests()) {
    if (one.available_deviceids_size() > kMaxIds || one.must_include_deviceids_size() > kMaxIds)
      return TooMany();
    const std::vector<std::string> chosen =
        Prefer(shares, {one.available_deviceids().begin(), one.available_deviceids().end()},
               {one.must_include_deviceids().begin(), one.must_include_deviceids().end()},
               one.allocation_size());
    v1beta1::ContainerPreferredAllocationResponse* const container =
        response->add_container_responses();
    for (const std::string& id : chosen) container->add_deviceids(id);
  }
  return grpc::Status::OK;
}

grpc::Status ShareService::Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                                    v1beta1::AllocateResponse* response) {
  if (request->container_requests_size() > kMaxContainers) return TooMany();
  const std::vector<Share> shares = this->shares();
  for (const v1beta1::ContainerAllocateRequest& one : request->container_requests()) {
    if (one.devices_ids_size() > kMaxIds) return TooMany();
    const absl::StatusOr<proto::TenantEndpoint> endpoint =
        EndpointOf(resource_, shares, {one.devices_ids().begin(), one.devices_ids().end()});
    if (!endpoint.ok()) return ToGrpc(endpoint.status());
    v1beta1::ContainerAllocateResponse* const container = response->add_container_responses();
    if (options_.inject == Inject::kCdi) {
      container->add_cdi_devices()->set_name(
          absl::StrCat(containers::kCdiShares, "=", endpoint->name()));
      continue;
    }
    FillIn({containers::EndpointMount(options_.run_directory, endpoint->name())}, container);
    FillIn(options_.common.mounts, container);
    for (const auto& [name, value] : options_.common.environment)
      (*container->mutable_envs())[name] = value;
  }
  return grpc::Status::OK;
}

grpc::Status ShareService::PreStartContainer(grpc::ServerContext*,
                                             const v1beta1::PreStartContainerRequest* request,
                                             v1beta1::PreStartContainerResponse*) {
  if (request->devices_ids_size() > kMaxIds) return TooMany();
  const absl::StatusOr<proto::TenantEndpoint> endpoint = EndpointOf(
      resource_, shares(), {request->devices_ids().begin(), request->devices_ids().end()});
  if (!endpoint.ok()) return ToGrpc(endpoint.status());
  const absl::Status opened = daemon_.OpenEndpoint(*endpoint);
  if (opened.ok()) return grpc::Status::OK;
  return ToGrpc(
      absl::Status(opened.code(), absl::StrCat("detshared: ", std::string(opened.message()))));
}

}  // namespace detshare::kubernetes
