// Tells kubelet the health of the GPUs, which it shows in the status of pods.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "tools/kubernetes/dra/dra_health.grpc.pb.h"
#include "tools/kubernetes/gpu.h"
#include "tools/kubernetes/snapshot_streams.h"

namespace detshare::kubernetes {

class HealthService final
    : public v1alpha1::DRAResourceHealth::WithCallbackMethod_NodeWatchResources<
          v1alpha1::DRAResourceHealth::Service> {
 public:
  explicit HealthService(std::string pool) : pool_(std::move(pool)) {}

  // Any thread. Kubelet takes health as unknown that is not sent again for half a minute, so the
  // caller calls it more often, also without a change.
  void SetGpus(const std::vector<Gpu>& gpus, int64_t unix_seconds);

  grpc::ServerWriteReactor<v1alpha1::NodeWatchResourcesResponse>* NodeWatchResources(
      grpc::CallbackServerContext* context,
      const v1alpha1::NodeWatchResourcesRequest* request) override;

 private:
  const std::string pool_;
  SnapshotStreams<v1alpha1::NodeWatchResourcesResponse> streams_;
};

}  // namespace detshare::kubernetes
