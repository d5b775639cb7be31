// What the driver publishes about the GPUs of a node: the devices of its ResourceSlice.
//
// All functions are pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/kubernetes/gpu.h"

namespace detshare::kubernetes {

// Keys of the taints.
inline constexpr char kTaintLost[] = "gpu.detshare.io/lost";
inline constexpr char kTaintUnreachable[] = "gpu.detshare.io/daemon-unreachable";
inline constexpr char kTaintAllocator[] = "gpu.detshare.io/other-allocator";

struct SliceOptions {
  std::string node;
  int places = 16;  // how many claims may have a part of one GPU
  // What this API server stores. It drops fields of features that it does not have.
  bool taints = true;
};

// The most devices of a slice, if some may have taints.
inline constexpr size_t kMaxDevices = 64;

// spec of the ResourceSlice, with this generation of the pool. A GPU with which no new claim may
// begin has a taint; without taints it is left out. `reachable` says whether the daemon replies.
nlohmann::json SliceSpec(const std::vector<Gpu>& gpus, bool reachable, const SliceOptions& options,
                         int64_t generation);

// Whether two specs offer the same, whatever their generations and the times of their taints.
bool SameOffer(const nlohmann::json& a, const nlohmann::json& b);
// Gives the taints of `spec` the times that they have in `before`, so that they stay as old as they
// are.
void KeepTaintTimes(const nlohmann::json& before, nlohmann::json* spec);

}  // namespace detshare::kubernetes
