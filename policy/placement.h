// Placements: pure functions that choose the device on which a session begins.
//
//   round-robin     the next device in turn that has the memory, after the one that was chosen last
//   best-fit        the device on which the least memory is left over
//   workload-aware  the device where the session and the sessions there harm each other least:
//                   tenants with objectives away from each other, work that is bound by memory
//                   beside work that is bound by arithmetic; then the device with the fewest
//                   sessions; then best-fit
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "policy/policy.h"

namespace detshare::policy {

// A session that looks for a device.
struct PlacementRequest {
  Tenant tenant;
  uint64_t memory = 0;  // bytes that the session needs
  // CoroutineView::memory_bound of the tenant's earlier sessions; below 0: not known.
  double memory_bound = -1;
  // The share of a device that the session keeps busy, 0 to 1; below 0: not known.
  double load = -1;
  // Whether somebody waits for the tenant's results.
  bool HasObjective() const {
    return tenant.tenant_class == TenantClass::kLatency || tenant.slo_latency > 0 ||
           tenant.slo_ttft > 0 || tenant.slo_tpot > 0;
  }
};

// A device and the requests of the sessions on it. Memory is in bytes.
struct DeviceLoad {
  uint64_t memory = 0, memory_used = 0;
  std::vector<PlacementRequest> sessions;
  Nanoseconds placed_at = 0;  // when a session was last placed there; 0: never
  bool open = true;           // false: the device cannot be chosen
};

// Threading: any thread.
class DevicePlacement {
 public:
  virtual ~DevicePlacement() = default;
  // The index in `devices` of the chosen device. ResourceExhausted, with the most free memory of a
  // device, if the request fits on no open device.
  virtual absl::StatusOr<int> Place(const PlacementRequest& request,
                                    absl::Span<const DeviceLoad> devices) const = 0;
};

inline constexpr char kDefaultPlacement[] = "workload-aware";

// NotFound, with the known names, for an unknown name.
absl::StatusOr<std::unique_ptr<DevicePlacement>> CreatePlacement(std::string_view name);
std::vector<std::string> PlacementNames();

}  // namespace detshare::policy
