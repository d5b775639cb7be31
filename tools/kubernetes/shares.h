// What is offered to Kubernetes: resources, each of which divides every GPU of the host into
// shares. A share is one "device" of the resource; a container that asks for several gets several,
// of one GPU where that is possible.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "proto/door.pb.h"

namespace detshare::kubernetes {

struct Resource {
  std::string name;  // behind the domain: "gpu-share-latency"
  int shares = 8;    // of each GPU
  // Class, weight, limits and objectives of who has one share; weight and limits count for each
  // share. No name. Without a limit of device memory a share has its part of the GPU's; 0: no
  // limit.
  proto::TenantSetting tenant;
};

inline constexpr int kMostShares = 60;  // of one GPU

// "NAME[,shares=N][,class=C][,weight=W][,memory=SIZE][,pinned-memory=SIZE][,slo-latency=D]
// [,slo-ttft=D][,slo-tpot=D]". InvalidArgument.
absl::StatusOr<Resource> ParseResource(const std::string& text);

struct Gpu {
  std::string uuid;  // "GPU-8a1b..."
  uint64_t memory = 0;
  bool healthy = false;

  bool operator==(const Gpu&) const = default;
};

struct Share {
  std::string id;  // "<UUID without GPU->-<number>"
  std::string gpu;
  uint64_t memory = 0;  // its part of the GPU's
  bool healthy = false;
};

std::vector<Share> SharesOf(const Resource& resource, const std::vector<Gpu>& gpus);

// `size` of the available ids, those of `must` among them: of as few GPUs as possible, and of those
// of which most is left. What is no share of the resource is left out, so there may be fewer.
std::vector<std::string> Prefer(const std::vector<Share>& shares,
                                const std::vector<std::string>& available,
                                const std::vector<std::string>& must, int size);

// The door of a container that has the shares `ids`: the same for the same ids, whatever their
// order. InvalidArgument when there are none, when one is there twice, or is no share.
absl::StatusOr<proto::Door> DoorOf(const Resource& resource, const std::vector<Share>& shares,
                                   std::vector<std::string> ids);
// ... of one share.
std::string DoorName(const Resource& resource, const std::string& id);

}  // namespace detshare::kubernetes
