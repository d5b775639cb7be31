// Optional requests of a launch to the device. Results do not depend on them, and a device may
// ignore them. The numbers are CUDA's.
#pragma once

#include <array>
#include <cstdint>

namespace detshare {

struct LaunchHints {
  enum Given : uint32_t {
    kClusterScheduling = 1,
    kPreferredCluster = 2,
    kSyncDomain = 4,
    kSyncDomainMap = 8,
    kCarveout = 16,
    kAccessWindow = 32,
    kNvlinkCentric = 64,
    kAll = 127,
  };
  uint32_t given = 0;  // which of the following fields apply
  uint32_t cluster_scheduling = 0;
  std::array<uint32_t, 3> preferred_cluster{};
  uint32_t sync_domain = 0, sync_domain_default = 0, sync_domain_remote = 0;
  int32_t carveout = 0;
  bool nvlink_centric = false;
  uint64_t window_address = 0, window_bytes = 0;  // memory of the space
  float window_hit_ratio = 0;
  uint32_t window_hit = 0, window_miss = 0;
  friend bool operator==(const LaunchHints&, const LaunchHints&) = default;
};

}  // namespace detshare
