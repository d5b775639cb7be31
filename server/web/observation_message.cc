#include "server/web/observation_message.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace detshare {
namespace {

void ToMessage(const DurationCounts& durations, proto::ObservedDurations* message) {
  size_t used = durations.counts.size();
  while (used > 0 && durations.counts[used - 1] == 0) --used;
  message->mutable_counts()->Add(durations.counts.begin(), durations.counts.begin() + used);
  message->set_sum_ns(durations.sum);
}

DurationCounts FromMessage(const proto::ObservedDurations& message) {
  DurationCounts durations;
  const size_t known = std::min<size_t>(message.counts_size(), durations.counts.size());
  std::copy_n(message.counts().begin(), known, durations.counts.begin());
  durations.sum = message.sum_ns();
  return durations;
}

double Finite(double value) { return std::isfinite(value) ? value : 0; }

void ToMessage(const DeviceObservation& device, proto::ObservedDevice* message) {
  message->set_name(device.name);
  message->set_uuid(device.uuid);
  message->set_sm_count(device.sm_count);
  message->set_total_memory(device.total_memory);
  message->set_used_memory(device.used_memory);
  message->set_peak_bandwidth(device.peak_bandwidth);
  message->set_busy_seconds(device.busy_seconds);
  if (!device.health.ok()) {
    message->set_fault(device.health.message().empty() ? std::string("lost")
                                                       : std::string(device.health.message()));
  }
  for (const PartitionView& partition : device.partitions) {
    proto::ObservedPartition* const one = message->add_partitions();
    one->set_name(partition.name);
    one->set_first_sm(partition.first_sm);
    one->set_sm_count(partition.sm_count);
    one->set_sessions(partition.sessions);
  }
  proto::ObservedPreemption* const preemption = message->mutable_preemption();
  preemption->set_available(device.preemption.available);
  preemption->set_latency_ns(device.preemption.latency_ns);
  preemption->set_memory_bytes(device.preemption.memory_bytes);
  preemption->set_reason(device.preemption.reason);
  preemption->set_switched_off(device.preemption.switched_off);
  message->set_beside_native(device.beside_native);
}

DeviceObservation FromMessage(const proto::ObservedDevice& message) {
  DeviceObservation device;
  device.name = message.name();
  device.uuid = message.uuid();
  device.sm_count = std::max(message.sm_count(), 0);
  device.total_memory = message.total_memory();
  device.used_memory = message.used_memory();
  device.peak_bandwidth = Finite(message.peak_bandwidth());
  device.busy_seconds = Finite(message.busy_seconds());
  if (!message.fault().empty()) device.health = absl::UnavailableError(message.fault());
  for (const proto::ObservedPartition& one : message.partitions()) {
    device.partitions.push_back({one.name(), std::max(one.first_sm(), 0),
                                 std::max(one.sm_count(), 0), std::max(one.sessions(), 0)});
  }
  const proto::ObservedPreemption& preemption = message.preemption();
  device.preemption = {preemption.available(), std::max<int64_t>(preemption.latency_ns(), 0),
                       preemption.memory_bytes(), preemption.reason(), preemption.switched_off()};
  device.beside_native = message.beside_native();
  return device;
}

void ToMessage(const SessionObservation& session, proto::ObservedSession* message) {
  message->set_session(session.id);
  message->set_tenant(session.tenant);
  message->set_program(session.program);
  message->set_state(session.state);
  message->set_open(session.open);
  message->set_pid(session.pid);
  message->set_age_ms(session.age_ms);
  message->set_device_memory(session.device_memory);
  message->set_operations(session.operations);
  message->set_kernels(session.kernels);
  for (const PlaceObservation& place : session.places) {
    proto::ObservedPlace* const one = message->add_places();
    one->set_device(place.device);
    one->set_partition(place.partition);
    one->set_first_sm(place.first_sm);
    one->set_sm_count(place.sm_count);
    one->set_followed(place.followed);
    one->set_throttled(place.throttled);
    one->set_rank(place.rank);
    one->set_bound(place.bound);
  }
}

SessionObservation FromMessage(const proto::ObservedSession& message, int devices) {
  SessionObservation session;
  session.id = message.session();
  session.tenant = message.tenant();
  session.program = message.program();
  session.state = message.state();
  session.open = message.open();
  session.pid = message.pid();
  session.age_ms = message.age_ms();
  session.device_memory = message.device_memory();
  session.operations = message.operations();
  session.kernels = message.kernels();
  for (const proto::ObservedPlace& one : message.places()) {
    if (one.device() < 0 || one.device() >= devices) continue;
    session.places.push_back({one.device(), one.partition(), std::max(one.first_sm(), 0),
                              std::max(one.sm_count(), 0), one.followed(), one.throttled(),
                              one.rank(), one.bound()});
  }
  return session;
}

void ToMessage(const TenantObservation& tenant, proto::ObservedTenant* message) {
  message->set_name(tenant.tenant.name);
  message->set_tenant_class(static_cast<int>(tenant.tenant.tenant_class));
  message->set_slo_latency_ns(tenant.tenant.slo_latency);
  message->set_slo_ttft_ns(tenant.tenant.slo_ttft);
  message->set_slo_tpot_ns(tenant.tenant.slo_tpot);
  message->set_exclusive(tenant.tenant.exclusive);
  message->set_memory_limit(tenant.quota.memory);
  message->set_pinned_limit(tenant.quota.pinned_memory);
  message->set_sessions_limit(tenant.quota.sessions);
  for (const uint64_t bytes : tenant.charged_memory) message->add_charged_memory(bytes);

  const SessionCounters& counters = tenant.use.counters;
  message->set_opened(tenant.use.opened);
  message->set_faulted(tenant.use.faulted);
  message->set_violations(tenant.use.violations);
  message->set_open(tenant.use.open);
  message->set_device_memory(counters.device_memory);
  message->set_pinned_memory(counters.pinned_memory);
  message->set_operations(counters.operations);
  message->set_kernels(counters.kernels);
  message->set_bytes_copied(counters.bytes_copied);
  message->set_migrations(counters.migrations);
  message->set_code_bytes(counters.code_bytes);
  message->set_launches(counters.launches);
  message->set_graphs(counters.graphs);
  message->set_copies(counters.copies);
  message->set_fills(counters.fills);
  message->set_swap_out(counters.swap.out);
  message->set_swap_bytes_out(counters.swap.bytes_out);
  message->set_swap_bytes_in(counters.swap.bytes_in);
  message->set_swap_moves(counters.swap.moves);
  message->set_swap_ns(counters.swap.nanoseconds);

  const WorkTotals& work = tenant.work;
  message->set_device_time_ns(work.device_time);
  message->set_memory_bound_ns(work.memory_bound);
  message->set_throttled_by_window_ns(work.throttled_by_window);
  message->set_throttled_by_budget_ns(work.throttled_by_budget);
  message->set_passes(work.passes);
  message->set_collecting_ns(work.collecting);
  message->set_collections(work.collections);
  message->set_tokens(work.tokens);
  message->set_resizes(work.resizes);
  message->set_late_bursts(work.late_bursts);
  message->set_late_first_tokens(work.late_first_tokens);
  message->set_late_tokens(work.late_tokens);
  ToMessage(work.bursts, message->mutable_bursts());
  ToMessage(work.throttles, message->mutable_throttles());
  ToMessage(work.operations, message->mutable_timed_operations());
  ToMessage(work.first_tokens, message->mutable_first_tokens());
  ToMessage(work.tokens_apart, message->mutable_tokens_apart());
  message->set_memory_traffic(tenant.memory_traffic);

  message->set_sm_seconds(tenant.samples.sm_seconds);
  message->set_busy_seconds(tenant.samples.busy_seconds);
  for (const auto& [holder, seconds] : tenant.samples.waits_for)
    (*message->mutable_waits_for())[holder] = seconds;
}

TenantObservation FromMessage(const proto::ObservedTenant& message) {
  TenantObservation tenant;
  tenant.tenant.name = message.name();
  for (const auto known : {policy::TenantClass::kLatency, policy::TenantClass::kBatch}) {
    if (message.tenant_class() == static_cast<int>(known)) tenant.tenant.tenant_class = known;
  }
  tenant.tenant.slo_latency = message.slo_latency_ns();
  tenant.tenant.slo_ttft = message.slo_ttft_ns();
  tenant.tenant.exclusive = message.exclusive();
  tenant.tenant.slo_tpot = message.slo_tpot_ns();
  tenant.quota = {message.memory_limit(), message.pinned_limit(), message.sessions_limit()};
  tenant.charged_memory = {message.charged_memory().begin(), message.charged_memory().end()};

  SessionCounters& counters = tenant.use.counters;
  tenant.use.opened = message.opened();
  tenant.use.faulted = message.faulted();
  tenant.use.violations = message.violations();
  tenant.use.open = message.open();
  counters.device_memory = message.device_memory();
  counters.pinned_memory = message.pinned_memory();
  counters.operations = message.operations();
  counters.kernels = message.kernels();
  counters.bytes_copied = message.bytes_copied();
  counters.migrations = message.migrations();
  counters.code_bytes = message.code_bytes();
  counters.launches = message.launches();
  counters.graphs = message.graphs();
  counters.copies = message.copies();
  counters.fills = message.fills();
  counters.swap.out = message.swap_out();
  counters.swap.bytes_out = message.swap_bytes_out();
  counters.swap.bytes_in = message.swap_bytes_in();
  counters.swap.moves = message.swap_moves();
  counters.swap.nanoseconds = message.swap_ns();

  WorkTotals& work = tenant.work;
  work.device_time = message.device_time_ns();
  work.memory_bound = message.memory_bound_ns();
  work.throttled_by_window = message.throttled_by_window_ns();
  work.throttled_by_budget = message.throttled_by_budget_ns();
  work.passes = message.passes();
  work.collecting = message.collecting_ns();
  work.collections = message.collections();
  work.tokens = message.tokens();
  work.resizes = message.resizes();
  work.late_bursts = message.late_bursts();
  work.late_first_tokens = message.late_first_tokens();
  work.late_tokens = message.late_tokens();
  work.bursts = FromMessage(message.bursts());
  work.throttles = FromMessage(message.throttles());
  work.operations = FromMessage(message.timed_operations());
  work.first_tokens = FromMessage(message.first_tokens());
  work.tokens_apart = FromMessage(message.tokens_apart());
  tenant.memory_traffic = Finite(message.memory_traffic());

  tenant.samples.sm_seconds = Finite(message.sm_seconds());
  tenant.samples.busy_seconds = Finite(message.busy_seconds());
  for (const auto& [holder, seconds] : message.waits_for())
    tenant.samples.waits_for[holder] = Finite(seconds);
  return tenant;
}

}  // namespace

void ToMessage(const Observation& seen, proto::Observation* message) {
  message->set_pid(getpid());
  message->set_backend(seen.backend);
  message->set_policy(seen.policy);
  message->set_uptime_seconds(seen.uptime_seconds);
  for (const DeviceObservation& device : seen.devices) ToMessage(device, message->add_devices());
  for (const SessionObservation& session : seen.sessions)
    ToMessage(session, message->add_sessions());
  message->set_max_sessions(seen.max_sessions);
  message->set_swap_limit(seen.swap_limit);
  message->set_swap_used(seen.swap_used);
  for (const auto& [code, count] : seen.refusals)
    (*message->mutable_refusals())[static_cast<int>(code)] = count;
  for (const auto& [name, tenant] : seen.tenants) ToMessage(tenant, message->add_tenants());
  message->set_cpu_seconds(seen.process.cpu_seconds);
  message->set_resident_bytes(seen.process.resident_bytes);
}

Observation FromMessage(const proto::Observation& message) {
  Observation seen;
  seen.backend = message.backend();
  seen.policy = message.policy();
  seen.uptime_seconds = Finite(message.uptime_seconds());
  for (const proto::ObservedDevice& device : message.devices())
    seen.devices.push_back(FromMessage(device));
  for (const proto::ObservedSession& session : message.sessions())
    seen.sessions.push_back(FromMessage(session, message.devices_size()));
  seen.max_sessions = message.max_sessions();
  seen.swap_limit = message.swap_limit();
  seen.swap_used = message.swap_used();
  for (const auto& [code, count] : message.refusals())
    seen.refusals[static_cast<absl::StatusCode>(code)] = count;
  for (const proto::ObservedTenant& tenant : message.tenants())
    seen.tenants[tenant.name()] = FromMessage(tenant);
  seen.process.cpu_seconds = Finite(message.cpu_seconds());
  seen.process.resident_bytes = message.resident_bytes();
  return seen;
}

}  // namespace detshare
