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
                                                             std::vector<policy::Tenant> tenants,
                                                             const Clock& clock) {
  if (absl::Status status = policy->Check(tenants); !status.ok()) return status;
  std::unique_ptr<Placement> placement(
      new Placement(device, std::move(policy), std::move(tenants), clock));
  Place whole;
  whole.partition = &device.whole();
  whole.name = "all";
  placement->places_.push_back(std::move(whole));
  for (const policy::SmRange& range :
       placement->policy_->Partitions(ShapeOf(device), placement->tenants_)) {
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
  for (const Place& place : placement->places_) placement->ranges_.push_back(place.range);
  return placement;
}

void Placement::Decide(const GpuCoroutine* caller) {
  std::vector<policy::CoroutineView> views;
  for (const Entry& entry : entries_) {
    views.push_back(entry.view);
    views.back().tenant = &entry.tenant;
  }
  policy::Snapshot snapshot;
  snapshot.now = clock_.NowNanoseconds();
  snapshot.device = ShapeOf(device_);
  snapshot.partitions = ranges_;
  snapshot.tenants = tenants_;
  snapshot.coroutines = views;
  const policy::Decision decision = policy_->Decide(snapshot);
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const Place& place = places_[decision.grants[i].quiet.partition];
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

void Placement::Add(policy::CoroutineId session, const std::string& tenant,
                    GpuCoroutine& coroutine) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry entry;
  entry.view.id = session;
  entry.view.opened_at = clock_.NowNanoseconds();
  entry.tenant.name = tenant;
  for (const policy::Tenant& configured : tenants_) {
    if (configured.name == tenant) entry.tenant = configured;
  }
  entry.coroutine = &coroutine;
  entries_.push_back(std::move(entry));
  Decide(&coroutine);
}

void Placement::Remove(policy::CoroutineId session) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(entries_, [session](const Entry& entry) { return entry.view.id == session; });
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

std::string Placement::PartitionOf(policy::CoroutineId session) const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.view.id == session) return entry.place->name;
  }
  return "";
}

}  // namespace detshare
