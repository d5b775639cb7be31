#include "tools/kubernetes/dra/claim_service.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace detshare::kubernetes {

dra::NodePrepareResourcesResponse PrepareAll(const dra::NodePrepareResourcesRequest& request,
                                             const std::string& pool, ClaimStore& claims) {
  dra::NodePrepareResourcesResponse response;
  for (const dra::Claim& one : request.claims()) {
    dra::NodePrepareResourceResponse& reply = (*response.mutable_claims())[one.uid()];
    const absl::StatusOr<record::PreparedClaim> claim =
        claims.Prepare({one.namespace_(), one.name(), one.uid()});
    if (!claim.ok()) {
      reply.set_error(absl::StrCat("claim ", one.namespace_(), "/", one.name(), ": ",
                                   std::string(claim.status().message())));
      continue;
    }
    std::set<std::string> with_endpoint;
    for (const record::AllocatedDevice& allocated : claim->devices()) {
      dra::Device& device = *reply.add_devices();
      // Kubelet knows a subrequest by its main request.
      const std::string name = allocated.request().substr(0, allocated.request().find('/'));
      device.add_request_names(name);
      device.set_pool_name(pool);
      device.set_device_name(allocated.device());
      // Once for each request, because a container may use one request only.
      if (with_endpoint.insert(name).second)
        device.add_cdi_device_ids(absl::StrCat(kCdiClaims, "=", claim->endpoint().name()));
    }
  }
  return response;
}

dra::NodeUnprepareResourcesResponse UnprepareAll(const dra::NodeUnprepareResourcesRequest& request,
                                                 ClaimStore& claims) {
  dra::NodeUnprepareResourcesResponse response;
  for (const dra::Claim& one : request.claims()) {
    dra::NodeUnprepareResourceResponse& reply = (*response.mutable_claims())[one.uid()];
    const absl::Status done = claims.Unprepare(one.uid());
    if (!done.ok()) {
      reply.set_error(absl::StrCat("claim ", one.namespace_(), "/", one.name(), ": ",
                                   std::string(done.message())));
    }
  }
  return response;
}

}  // namespace detshare::kubernetes
