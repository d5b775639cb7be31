#include "client_shim/work/launch_hints.h"

#include <cstring>

#include "client_shim/transport/session.h"

namespace detshare::shim {
namespace {

CUresult AddWindow(uint16_t device, const CUaccessPolicyWindow& window, wire::LaunchHints* hints) {
  const auto largest = static_cast<size_t>(
      session().device(device).attribute(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE));
  if (window.num_bytes > largest) return CUDA_ERROR_INVALID_VALUE;
  if (!(window.hitRatio >= 0.0f && window.hitRatio <= 1.0f)) return CUDA_ERROR_INVALID_VALUE;
  // Driver 580 refuses no other property.
  if (window.missProp == CU_ACCESS_PROPERTY_PERSISTING) return CUDA_ERROR_INVALID_VALUE;
  hints->window_address = reinterpret_cast<uint64_t>(window.base_ptr);
  hints->window_bytes = window.num_bytes;
  hints->window_hit_ratio = window.hitRatio;
  hints->window_hit = window.hitProp;
  hints->window_miss = window.missProp;
  // An empty window switches off an earlier hint.
  if (window.num_bytes == 0) {
    hints->given &= ~static_cast<uint32_t>(wire::kHintAccessWindow);
  } else {
    hints->given |= wire::kHintAccessWindow;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult AddHint(uint16_t device, uint32_t attribute, const CUlaunchAttributeValue& value,
                 wire::LaunchHints* hints) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return AddWindow(device, value.accessPolicyWindow, hints);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value.clusterSchedulingPolicyPreference < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT ||
          value.clusterSchedulingPolicyPreference > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      hints->cluster_scheduling = value.clusterSchedulingPolicyPreference;
      hints->given |= wire::kHintClusterScheduling;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      if (value.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT &&
          value.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      hints->sync_domain = value.memSyncDomain;
      hints->given |= wire::kHintSyncDomain;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: {
      const int domains =
          session().device(device).attribute(CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT);
      if (value.memSyncDomainMap.default_ >= domains || value.memSyncDomainMap.remote >= domains)
        return CUDA_ERROR_INVALID_VALUE;
      hints->sync_domain_default = value.memSyncDomainMap.default_;
      hints->sync_domain_remote = value.memSyncDomainMap.remote;
      hints->given |= wire::kHintSyncDomainMap;
      return CUDA_SUCCESS;
    }
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: {
      const auto& cluster = value.preferredClusterDim;
      if ((cluster.x | cluster.y | cluster.z) == 0) return CUDA_SUCCESS;
      hints->preferred_cluster[0] = cluster.x;
      hints->preferred_cluster[1] = cluster.y;
      hints->preferred_cluster[2] = cluster.z;
      hints->given |= wire::kHintPreferredCluster;
      return CUDA_SUCCESS;
    }
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: {
      // Unlike for functions, -1 is no percentage.
      if (value.sharedMemCarveout > CU_SHAREDMEM_CARVEOUT_MAX_SHARED)
        return CUDA_ERROR_INVALID_VALUE;
      hints->carveout = static_cast<int32_t>(value.sharedMemCarveout);
      hints->given |= wire::kHintCarveout;
      return CUDA_SUCCESS;
    }
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      if (value.nvlinkUtilCentricScheduling > 1) return CUDA_ERROR_INVALID_VALUE;
      hints->nvlink_centric = value.nvlinkUtilCentricScheduling;
      hints->given |= wire::kHintNvlinkCentric;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_FOUND;
  }
}

wire::LaunchHints Merge(const wire::LaunchHints& launch, const wire::LaunchHints& stream) {
  wire::LaunchHints all = launch;
  const uint32_t more = stream.given & ~launch.given;
  all.given |= more;
  if ((more & wire::kHintSyncDomain) != 0) all.sync_domain = stream.sync_domain;
  if ((more & wire::kHintSyncDomainMap) != 0) {
    all.sync_domain_default = stream.sync_domain_default;
    all.sync_domain_remote = stream.sync_domain_remote;
  }
  if ((more & wire::kHintNvlinkCentric) != 0) all.nvlink_centric = stream.nvlink_centric;
  if ((more & wire::kHintAccessWindow) != 0) {
    all.window_address = stream.window_address;
    all.window_bytes = stream.window_bytes;
    all.window_hit_ratio = stream.window_hit_ratio;
    all.window_hit = stream.window_hit;
    all.window_miss = stream.window_miss;
  }
  return all;
}

void GetHint(const wire::LaunchHints& hints, CUlaunchAttributeID attribute,
             CUlaunchAttributeValue* value) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      value->accessPolicyWindow = {reinterpret_cast<void*>(hints.window_address),
                                   hints.window_bytes, hints.window_hit_ratio,
                                   static_cast<CUaccessProperty>(hints.window_hit),
                                   static_cast<CUaccessProperty>(hints.window_miss)};
      return;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: {
      const bool given = (hints.given & wire::kHintSyncDomainMap) != 0;
      value->memSyncDomainMap.default_ =
          given ? static_cast<unsigned char>(hints.sync_domain_default) : 0;
      value->memSyncDomainMap.remote =
          given ? static_cast<unsigned char>(hints.sync_domain_remote) : 1;
      return;
    }
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      value->memSyncDomain = static_cast<CUlaunchMemSyncDomain>(hints.sync_domain);
      return;
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      value->nvlinkUtilCentricScheduling = hints.nvlink_centric;
      return;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      value->clusterSchedulingPolicyPreference =
          static_cast<CUclusterSchedulingPolicy>(hints.cluster_scheduling);
      return;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      value->preferredClusterDim.x = hints.preferred_cluster[0];
      value->preferredClusterDim.y = hints.preferred_cluster[1];
      value->preferredClusterDim.z = hints.preferred_cluster[2];
      return;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      value->sharedMemCarveout = static_cast<unsigned int>(hints.carveout);
      return;
    default:
      return;
  }
}

}  // namespace detshare::shim
