#include "server/sessions/session_placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace detshare {
namespace {

// Times of other processes that are so far ahead are nonsense.
constexpr int64_t kAhead = 1'000'000'000;

}  // namespace

bool IsRunName(const std::string& run) {
  constexpr size_t kMax = 64;
  return run.size() <= kMax && std::all_of(run.begin(), run.end(),
                                           [](unsigned char c) { return absl::ascii_isalnum(c); });
}

const std::vector<int>* SessionPlacement::Find(const PlacementGroup& group) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return nullptr;
  found->second.asked_at = clock_.NowNanoseconds();
  return &found->second.devices;
}

absl::StatusOr<std::vector<int>> SessionPlacement::Place(const PlacementGroup& group,
                                                         const policy::PlacementRequest& request,
                                                         Devices all) {
  const int64_t now = clock_.NowNanoseconds();
  Forget(group, now);
  std::vector<policy::DeviceLoad>& devices = all.loads;
  for (const auto& [other, placed] : groups_) {
    if (placed.came || now - placed.placed_at >= kComing) continue;
    for (const int index : placed.devices) {
      policy::DeviceLoad& device = devices[static_cast<size_t>(index)];
      const bool counted = std::any_of(
          device.sessions.begin(), device.sessions.end(),
          [&name = other.tenant](const auto& there) { return there.tenant.name == name; });
      // The limit of a tenant holds for all of its sessions together. So the memory that is
      // promised to a tenant does not count against this tenant.
      if (!counted && other.tenant != group.tenant) device.memory_used += placed.request.memory;
      device.sessions.push_back(placed.request);
    }
  }
  for (policy::DeviceLoad& device : devices) {
    if (device.placed_at > now + kAhead) device.placed_at = 0;
  }
  for (const auto& [index, placed_at] : placed_at_) {
    policy::DeviceLoad& device = devices[static_cast<size_t>(index)];
    device.placed_at = std::max(device.placed_at, placed_at);
  }
  std::vector<policy::DeviceLoad> with_promises = devices;
  for (size_t i = 0; i < all.promised_by_others.size(); ++i)
    with_promises[i].memory_used += all.promised_by_others[i];
  absl::StatusOr<std::vector<int>> chosen = Choose(group, request, std::move(with_promises));
  if (absl::IsResourceExhausted(chosen.status()) && !all.promised_by_others.empty())
    chosen = Choose(group, request, devices);
  if (absl::IsResourceExhausted(chosen.status()) && all.more_memory != 0) {
    // Memory that may be evicted counts as free. The card's size still bounds each request.
    for (policy::DeviceLoad& device : devices)
      device.memory_used -= std::min(device.memory_used, all.more_memory);
    if (absl::StatusOr<std::vector<int>> again = Choose(group, request, std::move(devices));
        again.ok())
      chosen = std::move(again);
  }
  if (!chosen.ok()) return chosen;
  Placed& placed = groups_[group];
  placed = {};
  placed.devices = *chosen;
  placed.request = request;
  placed.placed_at = placed.asked_at = now;
  return chosen;
}

absl::StatusOr<std::vector<int>> SessionPlacement::Choose(const PlacementGroup& group,
                                                          const policy::PlacementRequest& request,
                                                          std::vector<policy::DeviceLoad> devices) {
  for (policy::DeviceLoad& device : devices) device.open = false;
  for (const int index : group.among) devices[static_cast<size_t>(index)].open = true;
  int64_t latest = clock_.NowNanoseconds();
  for (const policy::DeviceLoad& device : devices) latest = std::max(latest, device.placed_at);
  std::vector<bool> chosen(devices.size(), false);
  for (size_t i = 0; i < group.count; ++i) {
    const absl::StatusOr<int> index = placement_->Place(request, devices);
    if (!index.ok()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "no place for ", group.count == 1 ? "a device" : absl::StrCat(group.count, " devices"),
          ": ", std::string(index.status().message()), i == 0 ? "" : " among those that are left",
          ". Wait for a program to end, or ask for less"));
    }
    chosen[static_cast<size_t>(*index)] = true;
    policy::DeviceLoad& device = devices[static_cast<size_t>(*index)];
    device.open = false;
    device.placed_at = ++latest;
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    if (chosen[i]) placed_at_[static_cast<int>(i)] = devices[i].placed_at;
  }
  std::vector<int> ordered;
  for (const int index : group.among) {
    if (chosen[static_cast<size_t>(index)]) ordered.push_back(index);
  }
  return ordered;
}

int64_t SessionPlacement::PlacedAt(int device) const {
  const auto found = placed_at_.find(device);
  return found != placed_at_.end() ? found->second : 0;
}

void SessionPlacement::Opened(const PlacementGroup& group) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return;
  ++found->second.sessions;
  found->second.came = true;
}

void SessionPlacement::Closed(const PlacementGroup& group) {
  const auto found = groups_.find(group);
  if (found == groups_.end() || found->second.sessions == 0) return;
  --found->second.sessions;
  found->second.asked_at = clock_.NowNanoseconds();
}

void SessionPlacement::Forget(const PlacementGroup& next, int64_t now) {
  std::erase_if(groups_, [now](const auto& entry) {
    return entry.second.sessions == 0 && now - entry.second.asked_at >= kRemembered;
  });
  // Bounds the groups of one owner, so that a user can neither fill the daemon's memory with groups
  // nor displace groups of other users.
  size_t without = 0;
  auto oldest = groups_.end();
  for (auto entry = groups_.begin(); entry != groups_.end(); ++entry) {
    if (entry->second.sessions != 0 || entry->first.uid != next.uid ||
        entry->first.endpoint != next.endpoint)
      continue;
    ++without;
    if (oldest == groups_.end() || entry->second.asked_at < oldest->second.asked_at) oldest = entry;
  }
  if (without >= kMaxWithoutSession) groups_.erase(oldest);
}

}  // namespace detshare
