// Hints of a launch to the device. Results do not depend on them.
#pragma once

#include <cstdint>

namespace detshare::wire {

// Bits that say which fields of LaunchHints are set.
enum LaunchHint : uint32_t {
  kHintClusterScheduling = 1,
  kHintPreferredCluster = 2,
  kHintSyncDomain = 4,
  kHintSyncDomainMap = 8,
  kHintCarveout = 16,
  kHintAccessWindow = 32,
  kHintNvlinkCentric = 64,
};

// Follows the parameters of a launch with kLaunchHasHints, at the next multiple of 8. The values
// are CUDA's.
struct LaunchHints {
  uint32_t given;                 // bits of LaunchHint
  uint32_t cluster_scheduling;    // CUclusterSchedulingPolicy
  uint32_t preferred_cluster[3];  // multiples of the launch's cluster
  uint32_t sync_domain;           // CUlaunchMemSyncDomain
  uint32_t sync_domain_default;   // CUlaunchMemSyncDomainMap
  uint32_t sync_domain_remote;
  int32_t carveout;         // percent of shared memory, or -1
  uint32_t nvlink_centric;  // 0 or 1
  uint64_t window_address;  // CUaccessPolicyWindow
  uint64_t window_bytes;
  float window_hit_ratio;
  uint32_t window_hit;
  uint32_t window_miss;
  uint32_t reserved;
};
static_assert(sizeof(LaunchHints) == 72);

}  // namespace detshare::wire
