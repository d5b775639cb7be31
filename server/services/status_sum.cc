#include "server/services/status_sum.h"

#include <algorithm>
#include <string>

namespace detshare {
namespace {

void AddDevice(const proto::DeviceStatus& other, proto::DeviceStatus* device) {
  device->set_used_memory(std::max(device->used_memory(), other.used_memory()));
  if (device->state() == "ok") device->set_state(other.state());
  if (other.beside_native()) device->set_beside_native(true);
  for (const proto::PartitionStatus& more : other.partitions()) {
    auto* const known = device->mutable_partitions();
    const auto same = std::find_if(known->begin(), known->end(),
                                   [&](const auto& one) { return one.name() == more.name(); });
    if (same == known->end()) {
      *device->add_partitions() = more;
    } else {
      same->set_sessions(same->sessions() + more.sessions());
    }
  }
}

void AddTenant(const proto::TenantUse& other, proto::TenantUse* tenant) {
  for (int i = 0; i < other.memory_used_size(); ++i) {
    if (i == tenant->memory_used_size()) tenant->add_memory_used(0);
    tenant->set_memory_used(i, tenant->memory_used(i) + other.memory_used(i));
  }
  tenant->set_pinned_used(tenant->pinned_used() + other.pinned_used());
  tenant->set_sessions_used(tenant->sessions_used() + other.sessions_used());
  tenant->set_refusals(tenant->refusals() + other.refusals());
}

}  // namespace

void AddDevices(const proto::Status& other, proto::Status* all) {
  if (all->devices_size() == 0) {
    *all->mutable_devices() = other.devices();
    all->set_backend(other.backend());
  } else {
    for (int i = 0; i < std::min(other.devices_size(), all->devices_size()); ++i)
      AddDevice(other.devices(i), all->mutable_devices(i));
  }
}

void CopyUseOfDevices(const proto::Status& all, proto::Status* part) {
  for (int i = 0; i < std::min(all.devices_size(), part->devices_size()); ++i) {
    part->mutable_devices(i)->set_used_memory(all.devices(i).used_memory());
    part->mutable_devices(i)->set_beside_native(all.devices(i).beside_native());
  }
}

void AddStatus(const proto::Status& other, proto::Status* all) {
  // The limit is that of all engines together.
  all->set_swap_limit(std::max(all->swap_limit(), other.swap_limit()));
  all->set_swap_used(all->swap_used() + other.swap_used());
  AddDevices(other, all);
  all->mutable_engines()->MergeFrom(other.engines());
  for (const proto::TenantUse& more : other.tenants()) {
    auto* const known = all->mutable_tenants();
    const auto same = std::find_if(known->begin(), known->end(),
                                   [&](const auto& one) { return one.name() == more.name(); });
    if (same == known->end()) {
      *all->add_tenants() = more;
    } else {
      AddTenant(more, &*same);
    }
  }
  all->mutable_sessions()->MergeFrom(other.sessions());
  std::sort(all->mutable_sessions()->begin(), all->mutable_sessions()->end(),
            [](const auto& a, const auto& b) { return a.session() < b.session(); });
}

}  // namespace detshare
