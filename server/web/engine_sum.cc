#include "server/web/engine_sum.h"

#include <algorithm>
#include <utility>

namespace detshare {
namespace {

void Add(const TenantObservation& one, TenantObservation* sum) {
  sum->tenant = one.tenant;
  sum->quota = one.quota;
  sum->charged_memory.resize(std::max(sum->charged_memory.size(), one.charged_memory.size()));
  for (size_t i = 0; i < one.charged_memory.size(); ++i)
    sum->charged_memory[i] = std::max(sum->charged_memory[i], one.charged_memory[i]);
  sum->use.opened += one.use.opened;
  sum->use.faulted += one.use.faulted;
  sum->use.violations += one.use.violations;
  sum->use.open += one.use.open;
  sum->use.Add(one.use.counters);
  sum->work += one.work;
  sum->memory_traffic += one.memory_traffic;
}

// Returns the part of a tenant's figures that stays valid after its process has ended or stopped
// replying.
TenantObservation Counts(TenantObservation one) {
  one.use.open = 0;
  one.charged_memory.clear();
  one.use.counters.device_memory = 0;
  one.use.counters.pinned_memory = 0;
  one.use.counters.swap.out = 0;
  return one;
}

double Grown(double now, double then) { return std::max(0.0, now - then); }

template <typename Map>
typename Map::mapped_type Of(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  return found != map.end() ? found->second : typename Map::mapped_type();
}

void AddPartitions(const std::vector<PartitionView>& more, std::vector<PartitionView>* partitions) {
  for (const PartitionView& one : more) {
    const auto known = std::find_if(partitions->begin(), partitions->end(),
                                    [&](const auto& other) { return other.name == one.name; });
    if (known == partitions->end()) {
      partitions->push_back(one);
    } else {
      known->sessions += one.sessions;
    }
  }
}

}  // namespace

void EngineSum::Reserve(const std::string& tenant) {
  ended_.Reserve(tenant);
  samples_.Reserve(tenant);
}

void EngineSum::KeepForgotten(const Observation& last, const Observation& now) {
  for (const auto& [name, tenant] : last.tenants) {
    if (!now.tenants.contains(name)) Add(Counts(tenant), &ended_.At(name));
  }
}

void EngineSum::NoteTenants(const std::map<pid_t, Observation>& replies) {
  const size_t evictions = samples_.evictions();
  std::set<std::string> names;
  for (const auto& [process, one] : processes_) {
    const auto reply = replies.find(process);
    const Observation& latest = reply != replies.end() ? reply->second : one.last;
    for (const auto& [name, tenant] : latest.tenants) names.insert(name);
  }
  for (const std::string& name : told_of_) {
    if (names.contains(name)) continue;
    ended_.End(name, now());
    samples_.End(name, now());
  }
  for (const std::string& name : names) {
    if (told_of_.contains(name)) continue;
    ended_.Begin(name, now());
    samples_.Begin(name, now());
  }
  told_of_ = std::move(names);
  if (samples_.evictions() != evictions) ForgetWaits(&samples_);
}

void EngineSum::Begun(const std::string& group, pid_t process) {
  processes_[process].group = group;
  groups_.Begin(group, now());
  ++groups_.At(group).starts;
}

void EngineSum::Ended(pid_t process, EngineEnd how) {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return;
  const Process& one = found->second;
  EngineObservation& engine = groups_.At(one.group);
  engine.failures += how != EngineEnd::kAsked;
  device_losses_ += how == EngineEnd::kDeviceLost;
  engine.cpu_seconds += one.last.process.cpu_seconds;
  for (const auto& [name, tenant] : one.last.tenants) Add(Counts(tenant), &ended_.At(name));
  for (const auto& [code, count] : one.last.refusals) ended_refusals_[code] += count;
  groups_.End(one.group, now());
  processes_.erase(found);
  NoteTenants({});
}

void EngineSum::Missed(pid_t process) {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return;
  found->second.responds = false;
  ++groups_.At(found->second.group).timeouts;
}

void EngineSum::Update(std::map<pid_t, Observation> replies, double seconds) {
  std::erase_if(replies, [&](const auto& item) { return !processes_.contains(item.first); });
  now_s_ += seconds;
  for (const auto& [process, seen] : replies) KeepForgotten(processes_.at(process).last, seen);
  NoteTenants(replies);
  AddSamples(replies, seconds);
  for (auto& [process, one] : processes_) {
    const auto reply = replies.find(process);
    if (reply == replies.end()) {
      one.silent_s += seconds;
      continue;
    }
    backend_ = reply->second.backend;
    policy_ = reply->second.policy;
    one.received = one.responds = true;
    one.silent_s = 0;
    one.last = std::move(reply->second);
  }
}

void EngineSum::AddSamples(const std::map<pid_t, Observation>& replies, double seconds) {
  size_t devices = devices_.size();
  for (const auto& [process, seen] : replies) devices = std::max(devices, seen.devices.size());
  devices_.resize(devices);
  std::vector<double> busy(devices, 0);
  std::map<std::string, double> sm_seconds;
  double longest = 0, sum = 0;
  int sms = 0;
  for (const auto& [process, seen] : replies) {
    const Process& known = processes_.at(process);
    const Observation& last = known.last;
    longest = std::max(longest, known.silent_s + seconds);
    int seen_sms = 0;
    for (size_t i = 0; i < seen.devices.size(); ++i) {
      const double busy_seconds = devices_[i].busy_seconds;
      devices_[i] = seen.devices[i];
      devices_[i].busy_seconds = busy_seconds;
      seen_sms += seen.devices[i].sm_count;
      const double then = i < last.devices.size() ? last.devices[i].busy_seconds : 0;
      busy[i] += Grown(seen.devices[i].busy_seconds, then);
    }
    sms = std::max(sms, seen_sms);
    for (const auto& [name, tenant] : seen.tenants) {
      const TenantSamples then = Of(last.tenants, name).samples;
      const double grown = Grown(tenant.samples.sm_seconds, then.sm_seconds);
      sm_seconds[name] += grown;
      sum += grown;
      TenantSamples& total = samples_.At(name);
      total.busy_seconds += Grown(tenant.samples.busy_seconds, then.busy_seconds);
      for (const auto& [holder, waited] : tenant.samples.waits_for)
        total.waits_for[samples_.NameFor(holder)] += Grown(waited, Of(then.waits_for, holder));
    }
  }
  for (size_t i = 0; i < devices; ++i) devices_[i].busy_seconds += std::min(busy[i], longest);
  const double max = longest * sms;
  const double part = replies.size() > 1 && sum > max ? max / sum : 1;
  for (const auto& [name, grown] : sm_seconds) samples_.At(name).sm_seconds += grown * part;
}

Observation EngineSum::Sum() const {
  Observation all;
  all.backend = backend_;
  all.policy = policy_;
  all.device_losses = device_losses_;
  all.refusals = ended_refusals_;
  // If there are too many names to keep them apart, ByTenant counts the rest together here, too.
  ByTenant<TenantObservation> tenants = ended_;
  ByTenant<EngineObservation> groups = groups_;
  all.devices = devices_;
  for (DeviceObservation& device : all.devices) {
    device.used_memory = 0;
    device.beside_native = false;
    device.health = absl::OkStatus();
    for (PartitionView& partition : device.partitions) partition.sessions = 0;
  }
  for (const auto& [process, one] : processes_) {
    EngineObservation& engine = groups.At(one.group);
    engine.runs = true;
    engine.responds = one.responds;
    engine.cpu_seconds += one.last.process.cpu_seconds;
    for (const auto& [code, count] : one.last.refusals) all.refusals[code] += count;
    for (const auto& [name, tenant] : one.last.tenants)
      Add(one.responds ? tenant : Counts(tenant), &tenants.At(name));
    if (!one.responds) continue;
    engine.resident_bytes += one.last.process.resident_bytes;
    all.max_sessions += one.last.max_sessions;
    all.swap_limit = std::max(all.swap_limit, one.last.swap_limit);  // of all engines together
    all.swap_used += one.last.swap_used;
    for (SessionObservation session : one.last.sessions) {
      session.group = one.group;
      engine.sessions += session.open;
      all.sessions.push_back(std::move(session));
    }
    for (size_t i = 0; i < one.last.devices.size() && i < all.devices.size(); ++i) {
      // All processes observe the same device.
      const DeviceObservation& seen = one.last.devices[i];
      DeviceObservation& device = all.devices[i];
      device.used_memory = std::max(device.used_memory, seen.used_memory);
      if (!seen.health.ok()) device.health = seen.health;
      device.beside_native |= seen.beside_native;
      AddPartitions(seen.partitions, &device.partitions);
    }
  }
  std::sort(all.sessions.begin(), all.sessions.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  all.tenants = tenants.all();
  for (const auto& [name, samples] : samples_.all()) all.tenants[name].samples = samples;
  for (auto& [name, tenant] : all.tenants) tenant.tenant.name = name;
  all.engines = groups.all();
  return all;
}

}  // namespace detshare
