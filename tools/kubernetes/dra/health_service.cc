#include "tools/kubernetes/dra/health_service.h"

#include <utility>

#include "tools/kubernetes/dra/claim.h"

namespace detshare::kubernetes {
namespace {

constexpr size_t kLongestText = 1024;

}  // namespace

void HealthService::SetGpus(const std::vector<Gpu>& gpus, int64_t unix_seconds) {
  v1alpha1::NodeWatchResourcesResponse list;
  for (const Gpu& gpu : gpus) {
    v1alpha1::DeviceHealth& one = *list.add_devices();
    one.mutable_device()->set_pool_name(pool_);
    one.mutable_device()->set_device_name(DeviceName(gpu.uuid));
    one.set_health(gpu.healthy ? v1alpha1::HEALTHY : v1alpha1::UNHEALTHY);
    one.set_last_updated_time(unix_seconds);
    one.set_message(gpu.problem.substr(0, kLongestText));
  }
  streams_.Send(std::move(list));
}

grpc::ServerWriteReactor<v1alpha1::NodeWatchResourcesResponse>* HealthService::NodeWatchResources(
    grpc::CallbackServerContext*, const v1alpha1::NodeWatchResourcesRequest*) {
  return streams_.Open();
}

}  // namespace detshare::kubernetes
