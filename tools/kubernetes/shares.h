// The resources that the plugin offers to Kubernetes. Each resource divides every GPU of the host
// into shares. A share is one "device" of the resource. A container may request several shares and
// gets them on one GPU where possible.
//
// All functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "proto/tenant_endpoint.pb.h"
#include "tools/kubernetes/gpu.h"

namespace detshare::kubernetes {

struct Resource {
  std::string name;  // without the domain: "gpu-share-latency"
  int shares = 8;    // of each GPU
  // The settings of a tenant with one share, without a name. Weight and limits are multiplied by
  // the number of shares. When the limit of device memory is not set, a share's limit is an equal
  // part of the GPU's memory. 0 means no limit.
  proto::TenantSetting tenant;
};

inline constexpr int kMaxShares = 60;  // of one GPU

// "NAME[,shares=N][,class=C][,weight=W][,exclusive=on|off][,memory=SIZE][,pinned-memory=SIZE]
// [,slo-latency=D][,slo-ttft=D][,slo-tpot=D]". InvalidArgument for any other text.
absl::StatusOr<Resource> ParseResource(const std::string& text);

// The plugin's name among allocators (TenantEndpoint.allocator).
inline constexpr char kAllocator[] = "detshare-device-plugin";

struct Share {
  std::string id;  // "<UUID without GPU->-<number>"
  std::string gpu;
  uint64_t memory = 0;  // bytes: an equal part of the GPU's memory
  bool healthy = false;
};

std::vector<Share> SharesOf(const Resource& resource, const std::vector<Gpu>& gpus);

// Chooses `size` of the available ids, among them all of `must`. It uses as few GPUs as possible
// and prefers GPUs with the most shares left. Ids that are no share of the resource are left out,
// so the result may be shorter.
std::vector<std::string> Prefer(const std::vector<Share>& shares,
                                const std::vector<std::string>& available,
                                const std::vector<std::string>& must, int size);

// The tenant endpoint of a container with the shares `ids`. It does not depend on the order of
// `ids`. InvalidArgument when `ids` is empty, has an id twice, or has an id that is no share.
absl::StatusOr<proto::TenantEndpoint> EndpointOf(const Resource& resource,
                                                 const std::vector<Share>& shares,
                                                 std::vector<std::string> ids);
// The name of the tenant endpoint whose first share is `id`.
std::string EndpointName(const Resource& resource, const std::string& id);

}  // namespace detshare::kubernetes
