#include "coroutine_runtime/placement.h"

#include <algorithm>
#include <utility>

namespace detshare {
namespace {

policy::DeviceShape ShapeOf(const Device& device) {
  return {device.properties().sm_count, std::max(1, device.properties().sm_group)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Placement>> Placement::Create(Device& device,
                                                             std::unique_ptr<policy::Policy> policy,
                                                             const Clock& clock) {
  std::unique_ptr<Placement> placement(new Placement(device, std::move(policy), clock));
  Place whole;
  whole.partition = &device.whole();
  whole.name = "all";
  placement->places_.push_back(std::move(whole));
  for (const policy::SmRange& range : placement->policy_->Partitions(ShapeOf(device))) {
    absl::StatusOr<std::unique_ptr<Partition>> partition =
        device.CreatePartition(range.first, range.count);
    if (!partition.ok()) return partition.status();
    Place place;
    place.range = range;
    place.owned = *std::move(partition);
    place.partition = place.owned.get();
    place.name =
        "sm" + std::to_string(range.first) + "-" + std::to_string(range.first + range.count - 1);
    placement->places_.push_back(std::move(place));
  }
  return placement;
}

const Placement::Place& Placement::Find(const policy::SmRange& range) const {
  for (const Place& place : places_) {
    if (place.range == range) return place;
  }
  return places_.front();  // a range that the policy did not announce
}

void Placement::Decide(const GpuCoroutine* caller) {
  policy::Snapshot snapshot;
  snapshot.now_ns = clock_.NowNanoseconds();
  snapshot.device = ShapeOf(device_);
  for (const Entry& entry : entries_) snapshot.sessions.push_back(entry.view);
  const policy::Decision decision = policy_->Decide(snapshot);
  for (Entry& entry : entries_) {
    const auto binding = decision.bindings.find(entry.view.session);
    const Place& place =
        binding == decision.bindings.end() ? places_.front() : Find(binding->second);
    if (entry.place == &place) continue;
    entry.place = &place;
    if (entry.coroutine == caller) {
      entry.coroutine->Bind(*place.partition);
    } else {
      entry.coroutine->executor().Post([coroutine = entry.coroutine, partition = place.partition] {
        coroutine->Bind(*partition);
      });
    }
  }
}

void Placement::Add(policy::SessionNumber session, const std::string& tenant,
                    GpuCoroutine& coroutine) {
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.push_back({{session, tenant}, &coroutine, nullptr});
  Decide(&coroutine);
}

void Placement::Remove(policy::SessionNumber session) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(entries_, [session](const Entry& entry) { return entry.view.session == session; });
  Decide(nullptr);
}

std::vector<Placement::PartitionView> Placement::Partitions() const {
  std::vector<PartitionView> views;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Place& place : places_) {
    PartitionView view;
    view.name = place.name;
    view.first_sm = place.partition->first_sm();
    view.sm_count = place.partition->sm_count();
    view.sessions =
        static_cast<int>(std::count_if(entries_.begin(), entries_.end(),
                                       [&](const Entry& entry) { return entry.place == &place; }));
    views.push_back(std::move(view));
  }
  return views;
}

std::string Placement::PartitionOf(policy::SessionNumber session) const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.view.session == session) return entry.place->name;
  }
  return "";
}

}  // namespace detshare
