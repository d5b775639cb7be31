#include "server/backends/cuda/hint_attributes.h"

namespace detshare::cuda {

unsigned WriteHints(const LaunchHints& hints, CUlaunchAttribute* attributes) {
  unsigned count = 0;
  const auto has = [&](uint32_t hint) { return (hints.given & hint) != 0; };
  const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute = {};
    attribute.id = id;
    return attribute.value;
  };
  if (has(LaunchHints::kClusterScheduling)) {
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
        .clusterSchedulingPolicyPreference =
        static_cast<CUclusterSchedulingPolicy>(hints.cluster_scheduling);
  }
  if (has(LaunchHints::kPreferredCluster)) {
    CUlaunchAttributeValue& value = add(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION);
    value.preferredClusterDim.x = hints.preferred_cluster[0];
    value.preferredClusterDim.y = hints.preferred_cluster[1];
    value.preferredClusterDim.z = hints.preferred_cluster[2];
  }
  if (has(LaunchHints::kSyncDomain)) {
    add(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain =
        static_cast<CUlaunchMemSyncDomain>(hints.sync_domain);
  }
  if (has(LaunchHints::kSyncDomainMap)) {
    CUlaunchAttributeValue& value = add(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP);
    value.memSyncDomainMap.default_ = static_cast<unsigned char>(hints.sync_domain_default);
    value.memSyncDomainMap.remote = static_cast<unsigned char>(hints.sync_domain_remote);
  }
  if (has(LaunchHints::kCarveout)) {
    add(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT).sharedMemCarveout =
        static_cast<unsigned>(hints.carveout);
  }
  if (has(LaunchHints::kAccessWindow)) {
    CUaccessPolicyWindow& window = add(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW).accessPolicyWindow;
    window.base_ptr = reinterpret_cast<void*>(hints.window_address);
    window.num_bytes = hints.window_bytes;
    window.hitRatio = hints.window_hit_ratio;
    window.hitProp = static_cast<CUaccessProperty>(hints.window_hit);
    window.missProp = static_cast<CUaccessProperty>(hints.window_miss);
  }
  if (has(LaunchHints::kNvlinkCentric)) {
    add(CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING).nvlinkUtilCentricScheduling =
        hints.nvlink_centric ? 1 : 0;
  }
  return count;
}

}  // namespace detshare::cuda
