// Serves kubelet's calls about claims.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "tools/kubernetes/dra/claim_store.h"
#include "tools/kubernetes/dra/dra_v1.grpc.pb.h"
#include "tools/kubernetes/dra/dra_v1beta1.grpc.pb.h"

namespace detshare::kubernetes {

namespace dra = k8s::io::kubelet::pkg::apis::dra::v1;

// The versions of the service, which have the same messages.
namespace versions {
using V1 = k8s::io::kubelet::pkg::apis::dra::v1::DRAPlugin;
using V1Beta1 = k8s::io::kubelet::pkg::apis::dra::v1beta1::DRAPlugin;
}  // namespace versions

// Prepares or unprepares each claim of a request. A claim that fails has its error in the reply.
dra::NodePrepareResourcesResponse PrepareAll(const dra::NodePrepareResourcesRequest& request,
                                             const std::string& pool, ClaimStore& claims);
dra::NodeUnprepareResourcesResponse UnprepareAll(const dra::NodeUnprepareResourcesRequest& request,
                                                 ClaimStore& claims);

// The calls run on gRPC's threads and wait for the API server and the daemon.
template <typename Version>
class ClaimService final : public Version::Service {
 public:
  // `claims` must outlive the service.
  ClaimService(std::string pool, ClaimStore& claims) : pool_(std::move(pool)), claims_(claims) {}

  grpc::Status NodePrepareResources(grpc::ServerContext*,
                                    const dra::NodePrepareResourcesRequest* request,
                                    dra::NodePrepareResourcesResponse* response) override {
    *response = PrepareAll(*request, pool_, claims_);
    return grpc::Status::OK;
  }
  grpc::Status NodeUnprepareResources(grpc::ServerContext*,
                                      const dra::NodeUnprepareResourcesRequest* request,
                                      dra::NodeUnprepareResourcesResponse* response) override {
    *response = UnprepareAll(*request, claims_);
    return grpc::Status::OK;
  }

 private:
  const std::string pool_;
  ClaimStore& claims_;
};

}  // namespace detshare::kubernetes
