#include "policy/placement.h"

#include <algorithm>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace detshare::policy {
namespace {

uint64_t Free(const DeviceLoad& device) {
  return device.memory > device.memory_used ? device.memory - device.memory_used : 0;
}

bool Holds(const DeviceLoad& device, const PlacementRequest& request) {
  return device.open && Free(device) >= request.memory;
}

absl::Status NoRoom(const PlacementRequest& request, absl::Span<const DeviceLoad> devices) {
  uint64_t max = 0;
  for (const DeviceLoad& device : devices) {
    if (device.open) max = std::max(max, Free(device));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("tenant ", request.tenant.name, " needs ", request.memory,
                   " bytes of device memory; no device has more than ", max, " free"));
}

class RoundRobin final : public DevicePlacement {
 public:
  absl::StatusOr<int> Place(const PlacementRequest& request,
                            absl::Span<const DeviceLoad> devices) const override {
    const auto last = std::max_element(
        devices.begin(), devices.end(),
        [](const DeviceLoad& a, const DeviceLoad& b) { return a.placed_at < b.placed_at; });
    const bool first = last == devices.end() || last->placed_at == 0;
    const size_t next = first ? 0 : static_cast<size_t>(last - devices.begin()) + 1;
    for (size_t tried = 0; tried < devices.size(); ++tried) {
      const size_t index = (next + tried) % devices.size();
      if (Holds(devices[index], request)) return static_cast<int>(index);
    }
    return NoRoom(request, devices);
  }
};

// The device with the lowest Cost() of those that have the memory; the first of equal devices.
template <typename Cost>
absl::StatusOr<int> Cheapest(const PlacementRequest& request, absl::Span<const DeviceLoad> devices,
                             Cost cost) {
  int best = -1;
  decltype(cost(devices[0])) best_cost;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!Holds(devices[i], request)) continue;
    const auto its_cost = cost(devices[i]);
    if (best < 0 || its_cost < best_cost) {
      best = static_cast<int>(i);
      best_cost = its_cost;
    }
  }
  if (best < 0) return NoRoom(request, devices);
  return best;
}

class BestFit final : public DevicePlacement {
 public:
  absl::StatusOr<int> Place(const PlacementRequest& request,
                            absl::Span<const DeviceLoad> devices) const override {
    return Cheapest(request, devices, Free);
  }
};

class WorkloadAware final : public DevicePlacement {
 public:
  absl::StatusOr<int> Place(const PlacementRequest& request,
                            absl::Span<const DeviceLoad> devices) const override {
    return Cheapest(request, devices, [&](const DeviceLoad& device) {
      double rivalry = 0, harm = 0;
      for (const PlacementRequest& there : device.sessions) {
        const double together = Load(request) * Load(there);
        if (request.HasObjective() && there.HasObjective()) rivalry += together;
        harm += Likeness(request, there) * together;
      }
      return std::tuple(rivalry, harm, device.sessions.size(), Free(device));
    });
  }

 private:
  static double Known(double value, double otherwise) {
    return value >= 0 ? std::min(value, 1.0) : otherwise;
  }

  // The share of the time in which both want the same resource, while both work.
  static double Likeness(const PlacementRequest& a, const PlacementRequest& b) {
    const double memory_a = Known(a.memory_bound, 0.5), memory_b = Known(b.memory_bound, 0.5);
    return memory_a * memory_b + (1 - memory_a) * (1 - memory_b);
  }
  static double Load(const PlacementRequest& request) {
    return Known(request.load, request.HasObjective() ? 0.3 : 1);
  }
};

struct Entry {
  absl::string_view name;
  std::unique_ptr<DevicePlacement> (*create)();
};

template <typename T>
std::unique_ptr<DevicePlacement> Create() {
  return std::make_unique<T>();
}

constexpr Entry kPlacements[] = {
    {"workload-aware", Create<WorkloadAware>},
    {"best-fit", Create<BestFit>},
    {"round-robin", Create<RoundRobin>},
};

}  // namespace

absl::StatusOr<std::unique_ptr<DevicePlacement>> CreatePlacement(std::string_view name) {
  std::string known;
  for (const Entry& entry : kPlacements) {
    if (name == std::string_view(entry.name.data(), entry.name.size())) return entry.create();
    absl::StrAppend(&known, known.empty() ? "" : ", ", entry.name);
  }
  return absl::NotFoundError(absl::StrCat("no placement is called \"", std::string(name),
                                          "\"; the placements are ", known));
}

std::vector<std::string> PlacementNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kPlacements) names.emplace_back(entry.name);
  return names;
}

}  // namespace detshare::policy
