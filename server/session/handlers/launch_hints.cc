#include "server/session/handlers/launch_hints.h"

#include "coroutine_runtime/device.h"

namespace detshare::handlers {
namespace {

static_assert(wire::kHintNvlinkCentric == static_cast<uint32_t>(LaunchHints::kNvlinkCentric));

constexpr uint32_t kMaxClusterPolicies = 2;  // CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING
constexpr uint32_t kPersisting = 2;          // CU_ACCESS_PROPERTY_PERSISTING
constexpr uint32_t kMaxSyncDomains = 256;
constexpr uint32_t kMaxClusterBlocks = 64;

}  // namespace

absl::Status ReadHints(Session& session, const wire::LaunchHints& named, LaunchHints* hints) {
  const auto has = [&](uint32_t hint) { return (named.given & hint) != 0; };
  bool sound = (named.given & ~static_cast<uint32_t>(LaunchHints::kAll)) == 0;
  if (has(wire::kHintClusterScheduling)) sound &= named.cluster_scheduling <= kMaxClusterPolicies;
  if (has(wire::kHintPreferredCluster)) {
    for (const uint32_t blocks : named.preferred_cluster)
      sound &= blocks >= 1 && blocks <= kMaxClusterBlocks;
  }
  if (has(wire::kHintSyncDomain)) sound &= named.sync_domain <= 1;
  if (has(wire::kHintSyncDomainMap)) {
    sound &=
        named.sync_domain_default < kMaxSyncDomains && named.sync_domain_remote < kMaxSyncDomains;
  }
  if (has(wire::kHintCarveout)) sound &= named.carveout >= -1 && named.carveout <= 100;
  if (has(wire::kHintNvlinkCentric)) sound &= named.nvlink_centric <= 1;
  if (has(wire::kHintAccessWindow)) {
    // These comparisons refuse NaN as well.
    sound &= named.window_hit_ratio >= 0.0f && named.window_hit_ratio <= 1.0f &&
             named.window_miss != kPersisting;
  }
  if (!sound) return CudaError(kCudaErrorInvalidValue, "unknown launch hints, or invalid values");
  hints->given = named.given;
  hints->cluster_scheduling = named.cluster_scheduling;
  hints->preferred_cluster = {named.preferred_cluster[0], named.preferred_cluster[1],
                              named.preferred_cluster[2]};
  hints->sync_domain = named.sync_domain;
  hints->sync_domain_default = named.sync_domain_default;
  hints->sync_domain_remote = named.sync_domain_remote;
  hints->carveout = named.carveout;
  hints->nvlink_centric = named.nvlink_centric != 0;
  hints->window_address = named.window_address;
  hints->window_bytes = named.window_bytes;
  hints->window_hit_ratio = named.window_hit_ratio;
  hints->window_hit = named.window_hit;
  hints->window_miss = named.window_miss;
  if (has(wire::kHintAccessWindow) &&
      !session.device().space->Contains(named.window_address, named.window_bytes)) {
    hints->given &= ~static_cast<uint32_t>(LaunchHints::kAccessWindow);
  }
  return absl::OkStatus();
}

}  // namespace detshare::handlers
