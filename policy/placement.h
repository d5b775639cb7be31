// On which device a session begins: a pure decision over several devices.
//
//   round-robin     the next device in turn that has the memory
//   best-fit        the device on which the least memory is left over
//   workload-aware  the device where it and those who are there harm each other least: somebody
//                   with an objective away from others with one, work that is bound by memory
//                   beside work that is bound by arithmetic; then where fewest are, then best-fit
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
  uint64_t memory = 0;  // bytes that it needs
  // As CoroutineView::memory_bound: what is known from earlier sessions, below 0 when nothing is.
  double memory_bound = -1;
  // Share of a device that it keeps busy, 0 to 1; below 0 when not known.
  double load = -1;
};

// A device, and those who are there by what they asked for.
struct DeviceLoad {
  uint64_t memory = 0, memory_used = 0;
  std::vector<PlacementRequest> sessions;
  bool open = true;  // false: it cannot be chosen
};

// Threading: one thread at a time.
class DevicePlacement {
 public:
  virtual ~DevicePlacement() = default;
  // An index into `devices`, which are the same ones each time. ResourceExhausted, with what is free
  // at most, when the memory fits on none that is open.
  virtual absl::StatusOr<int> Place(const PlacementRequest& request,
                                    absl::Span<const DeviceLoad> devices) = 0;
};

inline constexpr char kDefaultPlacement[] = "workload-aware";

// NotFound with the known names for an unknown name.
absl::StatusOr<std::unique_ptr<DevicePlacement>> CreatePlacement(std::string_view name);
std::vector<std::string> PlacementNames();

}  // namespace detshare::policy
