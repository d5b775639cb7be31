#include "server/web/sampler.h"

#include <algorithm>

#include "server/session/session_worker.h"

namespace detshare {

void Sampler::Note(const std::set<std::string>& tenants, double seconds) {
  now_ += seconds;
  const auto now = static_cast<int64_t>(now_ * 1e9);
  const size_t evictions = tenants_.evictions();
  for (const std::string& tenant : tenants) {
    if (!in_use_.contains(tenant)) tenants_.Begin(tenant, now);
  }
  for (const std::string& tenant : in_use_) {
    if (!tenants.contains(tenant)) tenants_.End(tenant, now);
  }
  in_use_ = tenants;
  if (tenants_.evictions() != evictions) ForgetWaits(&tenants_);
}

void Sampler::Count(size_t device, const std::vector<detshare::Look>& looks, double seconds) {
  bool busy = false;
  std::set<std::string> busy_tenants;
  // SMs that several sessions use are divided among them.
  std::vector<int> users;
  for (const detshare::Look& one : looks) {
    if (!one.busy) continue;
    users.resize(std::max<size_t>(users.size(), one.first_sm + one.sm_count), 0);
    for (int sm = 0; sm < one.sm_count; ++sm) ++users[one.first_sm + sm];
  }
  for (const detshare::Look& one : looks) {
    if (one.busy) {
      busy = true;
      double sms = 0;
      for (int sm = 0; sm < one.sm_count; ++sm) sms += 1.0 / users[one.first_sm + sm];
      tenants_.At(one.tenant).sm_seconds += sms * seconds;
      busy_tenants.insert(one.tenant);
    }
    if (!one.throttled) continue;
    // Counts the time for the tenants that go first; else for those that share the device with it;
    // else for the tenant itself.
    std::set<std::string> first, others;
    for (const detshare::Look& other : looks) {
      if (&other == &one || !(other.has_work || other.busy) || other.throttled) continue;
      if (other.rank < one.rank) first.insert(tenants_.NameFor(other.tenant));
      others.insert(tenants_.NameFor(other.tenant));
    }
    if (first.empty()) first = std::move(others);
    if (first.empty()) first.insert(tenants_.NameFor(one.tenant));
    WaitsFor& waits = tenants_.At(one.tenant).waits_for;
    for (const std::string& holder : first) waits[holder] += seconds;
  }
  for (const std::string& tenant : busy_tenants) tenants_.At(tenant).busy_seconds += seconds;
  if (busy) device_busy_[device] += seconds;
}

void Sampler::Look(SessionManager& manager, double seconds) {
  std::vector<std::vector<detshare::Look>> looks(manager.devices().size());
  const auto all = manager.Workers();
  std::set<std::string> tenants;
  for (const auto& [request, worker] : all) tenants.insert(request.tenant);
  Note(tenants, seconds);
  for (const auto& [request, worker] : all) {
    const std::vector<SessionDeviceUse> uses = worker->device_use();
    for (size_t i = 0; i < uses.size(); ++i) {
      const auto found =
          std::find(manager.devices().begin(), manager.devices().end(), uses[i].device);
      if (found == manager.devices().end()) continue;
      CoroutineState state;
      if (!worker->config().devices[i].scheduler->StateOf(worker->config().id, &state)) continue;
      detshare::Look look;
      look.tenant = request.tenant;
      look.first_sm = state.first_sm;
      look.sm_count = state.sm_count;
      look.busy = uses[i].busy;
      look.throttled = state.followed && state.figures.throttled_since != 0;
      look.has_work = state.followed && state.figures.has_work;
      look.rank = state.followed ? state.figures.rank : 0;
      looks[found - manager.devices().begin()].push_back(std::move(look));
    }
  }
  for (size_t device = 0; device < looks.size(); ++device) Count(device, looks[device], seconds);
}

}  // namespace detshare
