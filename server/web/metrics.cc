#include "server/web/metrics.h"

#include <functional>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/owner.h"
#include "proto/ring_abi.h"
#include "proto/version.h"
#include "server/services/settings_store.h"

namespace detshare {
namespace {

using Tenants = std::map<std::string, TenantObservation>;
constexpr auto kCounter = MetricType::kCounter;
constexpr auto kGauge = MetricType::kGauge;
constexpr auto kHistogram = MetricType::kHistogram;

double Seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

// Labels for the reasons why a client got no session.
constexpr struct {
  absl::StatusCode code;
  std::string_view reason;
} kReasons[] = {
    {absl::StatusCode::kPermissionDenied, "not_allowed"},
    {absl::StatusCode::kResourceExhausted, "no_room"},
    {absl::StatusCode::kInvalidArgument, "invalid"},
    {absl::StatusCode::kFailedPrecondition, "version"},
    {absl::StatusCode::kUnavailable, "unavailable"},
};

using Out = Exposition;

template <typename Value>
std::function<void(const Observation&, Out&)> OfTenants(Value value) {
  return [value](const Observation& seen, Out& out) {
    for (const auto& [name, tenant] : seen.tenants) out.Add({{"tenant", name}}, value(tenant));
  };
}

template <typename Value>
std::function<void(const Observation&, Out&)> OfTenantsAndClasses(Value value) {
  return [value](const Observation& seen, Out& out) {
    for (const auto& [name, tenant] : seen.tenants) {
      out.Add({{"tenant", name}, {"class", NameOf(tenant.tenant.tenant_class)}}, value(tenant));
    }
  };
}

// Adds samples for the tenants that have such a limit.
template <typename Value>
std::function<void(const Observation&, Out&)> Limits(Value value) {
  return [value](const Observation& seen, Out& out) {
    for (const auto& [name, tenant] : seen.tenants) {
      if (value(tenant) != 0) out.Add({{"tenant", name}}, value(tenant));
    }
  };
}

template <typename Value>
std::function<void(const Observation&, Out&)> OfDevices(Value value) {
  return [value](const Observation& seen, Out& out) {
    for (size_t i = 0; i < seen.devices.size(); ++i)
      out.Add({{"device", absl::StrCat(i)}}, value(seen.devices[i]));
  };
}

template <typename Value>
std::function<void(const Observation&, Out&)> Single(Value value) {
  return [value](const Observation& seen, Out& out) { out.Add({}, value(seen)); };
}

// Adds samples for the isolation groups for which `which` is true.
template <typename Which, typename Value>
std::function<void(const Observation&, Out&)> OfEngines(Which which, Value value) {
  return [which, value](const Observation& seen, Out& out) {
    for (const auto& [name, engine] : seen.engines) {
      if (which(engine)) out.Add({{"group", name}}, value(engine));
    }
  };
}

bool Known(const EngineObservation&) { return true; }
bool Runs(const EngineObservation& engine) { return engine.runs; }
bool Responds(const EngineObservation& engine) { return engine.runs && engine.responds; }

struct Entry {
  Metric metric;
  std::function<void(const Observation&, Out&)> add;
};

const std::vector<Entry>& Entries() {
  using T = TenantObservation;
  using D = DeviceObservation;
  using O = Observation;
  using E = EngineObservation;
  static const std::vector<Entry>* const entries = new std::vector<Entry>{
      // ---- the daemon
      {{"detshare_build_info", kGauge, "version,abi,backend", "The daemon that runs; always 1"},
       [](const O& seen, Out& out) {
         out.Add(
             {{"version", kVersion}, {"abi", absl::StrCat(kAbiVersion)}, {"backend", seen.backend}},
             uint64_t{1});
       }},
      {{"detshare_policy_info", kGauge, "policy", "The policy that decides; always 1"},
       [](const O& seen, Out& out) {
         out.Add({{"policy", seen.policy}}, uint64_t{1});
       }},
      {{"detshare_uptime_seconds", kGauge, "",
        "Time since the daemon started, or restarted after the loss of a device"},
       Single([](const O& seen) { return seen.uptime_seconds; })},
      {{"detshare_device_losses_total", kCounter, "",
        "Losses of a device; the daemon restarts after each"},
       Single([](const O& seen) { return seen.device_losses; })},
      // ---- devices
      {{"detshare_device_info", kGauge, "device,uuid,name", "A device; always 1"},
       [](const O& seen, Out& out) {
         for (size_t i = 0; i < seen.devices.size(); ++i) {
           const D& device = seen.devices[i];
           out.Add({{"device", absl::StrCat(i)}, {"uuid", device.uuid}, {"name", device.name}},
                   uint64_t{1});
         }
       }},
      {{"detshare_device_healthy", kGauge, "device", "1 while the device can be used, else 0"},
       OfDevices([](const D& device) { return uint64_t{device.health.ok()}; })},
      {{"detshare_device_sms", kGauge, "device", "SMs of the device"},
       OfDevices([](const D& device) { return static_cast<uint64_t>(device.sm_count); })},
      {{"detshare_device_memory_bytes", kGauge, "device", "Memory of the device"},
       OfDevices([](const D& device) { return device.total_memory; })},
      {{"detshare_device_memory_used_bytes", kGauge, "device",
        "Memory of the device that any process uses"},
       OfDevices([](const D& device) { return device.used_memory; })},
      {{"detshare_device_peak_bandwidth_bytes_per_second", kGauge, "device",
        "Bandwidth of the device's memory by its clock and width; 0: not known"},
       OfDevices([](const D& device) { return device.peak_bandwidth; })},
      {{"detshare_device_busy_seconds_total", kCounter, "device",
        "Time in which some session had work on the device (sampled)"},
       OfDevices([](const D& device) { return device.busy_seconds; })},
      {{"detshare_device_preemption_info", kGauge, "device,mode",
        "How urgent work stops the running work of others: time-slice groups, none; always 1"},
       [](const O& seen, Out& out) {
         for (size_t i = 0; i < seen.devices.size(); ++i) {
           out.Add({{"device", absl::StrCat(i)}, {"mode", seen.devices[i].preemption.mode()}},
                   uint64_t{1});
         }
       }},
      {{"detshare_device_preemption_latency_seconds", kGauge, "device",
        "Time from the launch of urgent work until it runs on a full device, measured when the "
        "daemon started; 0: no preemption"},
       OfDevices([](const D& device) { return Seconds(device.preemption.latency_ns); })},
      {{"detshare_device_preemption_memory_bytes", kGauge, "device",
        "Memory of the device that the urgent time-slice group of a process takes while it is "
        "open; 0: no preemption"},
       OfDevices([](const D& device) { return device.preemption.memory_bytes; })},
      {{"detshare_device_beside_native", kGauge, "device",
        "1 while programs that the daemon does not serve use the device beside its ordinary work, "
        "else 0"},
       OfDevices([](const D& device) { return uint64_t{device.beside_native}; })},
      {{"detshare_partition_sessions", kGauge, "device,partition",
        "Sessions whose work goes to the partition when the device is not contended"},
       [](const O& seen, Out& out) {
         for (size_t i = 0; i < seen.devices.size(); ++i) {
           for (const auto& partition : seen.devices[i].partitions) {
             out.Add({{"device", absl::StrCat(i)}, {"partition", partition.name}},
                     static_cast<uint64_t>(partition.sessions));
           }
         }
       }},
      {{"detshare_partition_sms", kGauge, "device,partition", "SMs of the partition"},
       [](const O& seen, Out& out) {
         for (size_t i = 0; i < seen.devices.size(); ++i) {
           for (const auto& partition : seen.devices[i].partitions) {
             out.Add({{"device", absl::StrCat(i)}, {"partition", partition.name}},
                     static_cast<uint64_t>(partition.sm_count));
           }
         }
       }},
      {{"detshare_swap_limit_bytes", kGauge, "",
        "Host memory that may hold device memory that is not on the cards; 0: memory stays on "
        "the cards"},
       Single([](const O& seen) { return seen.swap_limit; })},
      {{"detshare_swap_used_bytes", kGauge, "",
        "Host memory that holds device memory that is not on the cards"},
       Single([](const O& seen) { return seen.swap_used; })},
      // ---- sessions
      {{"detshare_sessions", kGauge, "tenant", "Sessions that are open"},
       OfTenants([](const T& tenant) { return tenant.use.open; })},
      {{"detshare_sessions_limit", kGauge, "",
        "Sessions that can be open at a time, all tenants together"},
       Single([](const O& seen) { return uint64_t{seen.max_sessions}; })},
      {{"detshare_sessions_opened_total", kCounter, "tenant", "Sessions that were opened"},
       OfTenants([](const T& tenant) { return tenant.use.opened; })},
      {{"detshare_sessions_refused_total", kCounter, "reason",
        "Sessions that were refused: not_allowed, no_room, invalid, version (shim and daemon do "
        "not fit), "
        "unavailable (the daemon ends), error"},
       [](const O& seen, Out& out) {
         std::map<absl::StatusCode, uint64_t> left = seen.refusals;
         for (const auto& [code, reason] : kReasons) {
           out.Add({{"reason", reason}}, left[code]);
           left.erase(code);
         }
         uint64_t others = 0;
         for (const auto& [code, count] : left) others += count;
         out.Add({{"reason", "error"}}, others);
       }},
      {{"detshare_session_faults_total", kCounter, "tenant",
        "Sessions whose work had a fault on the device"},
       OfTenants([](const T& tenant) { return tenant.use.faulted; })},
      {{"detshare_session_violations_total", kCounter, "tenant",
        "Sessions that were ended because they broke the protocol"},
       OfTenants([](const T& tenant) { return tenant.use.violations; })},
      // ---- tenants
      {{"detshare_tenant_info", kGauge, "tenant,class",
        "A tenant and its class (unset, latency, batch); always 1"},
       OfTenantsAndClasses([](const T&) { return uint64_t{1}; })},
      {{"detshare_tenant_owner_info", kGauge, "tenant,namespace,pod,container,user,job_id",
        "Whose work the tenant's is, if its endpoints say so; always 1. Labels that are not known "
        "are empty"},
       [](const O& seen, Out& out) {
         for (const auto& [name, tenant] : seen.tenants) {
           const proto::Owner& owner = tenant.owner;
           if (IsEmpty(owner)) continue;
           out.Add({{"tenant", name},
                    {"namespace", owner.namespace_()},
                    {"pod", owner.pod()},
                    {"container", owner.container()},
                    {"user", owner.user()},
                    {"job_id", owner.job()}},
                   uint64_t{1});
         }
       }},
      {{"detshare_operations_total", kCounter, "tenant,kind",
        "Operations that were given to the hardware: launch, graph, copy, fill, other (events, "
        "waits, memory operations)"},
       [](const O& seen, Out& out) {
         for (const auto& [name, tenant] : seen.tenants) {
           const SessionCounters& counts = tenant.use.counters;
           const uint64_t known = counts.launches + counts.graphs + counts.copies + counts.fills;
           out.Add({{"tenant", name}, {"kind", "launch"}}, counts.launches);
           out.Add({{"tenant", name}, {"kind", "graph"}}, counts.graphs);
           out.Add({{"tenant", name}, {"kind", "copy"}}, counts.copies);
           out.Add({{"tenant", name}, {"kind", "fill"}}, counts.fills);
           out.Add({{"tenant", name}, {"kind", "other"}},
                   counts.operations > known ? counts.operations - known : 0);
         }
       }},
      {{"detshare_kernels_total", kCounter, "tenant",
        "Kernels, launched by themselves or in graphs"},
       OfTenants([](const T& tenant) { return tenant.use.counters.kernels; })},
      {{"detshare_copied_bytes_total", kCounter, "tenant", "Bytes of copies"},
       OfTenants([](const T& tenant) { return tenant.use.counters.bytes_copied; })},
      {{"detshare_tenant_device_memory_bytes", kGauge, "tenant",
        "Device memory that the tenant's sessions have"},
       OfTenants([](const T& tenant) { return tenant.use.counters.device_memory; })},
      {{"detshare_tenant_pinned_memory_bytes", kGauge, "tenant",
        "Pinned host memory that the tenant's sessions have"},
       OfTenants([](const T& tenant) { return tenant.use.counters.pinned_memory; })},
      {{"detshare_tenant_charged_memory_bytes", kGauge, "tenant,device",
        "Device memory that counts against the tenant's limit; with several engines, in the one "
        "where it is most"},
       [](const O& seen, Out& out) {
         for (const auto& [name, tenant] : seen.tenants) {
           for (size_t i = 0; i < tenant.charged_memory.size(); ++i) {
             out.Add({{"tenant", name}, {"device", absl::StrCat(i)}}, tenant.charged_memory[i]);
           }
         }
       }},
      {{"detshare_tenant_device_memory_limit_bytes", kGauge, "tenant",
        "Limit of the tenant's memory on each device; no sample without a limit"},
       Limits([](const T& tenant) { return tenant.quota.memory; })},
      {{"detshare_tenant_pinned_memory_limit_bytes", kGauge, "tenant",
        "Limit of the tenant's pinned host memory; no sample without a limit"},
       Limits([](const T& tenant) { return tenant.quota.pinned_memory; })},
      {{"detshare_tenant_sessions_limit", kGauge, "tenant",
        "Sessions that the tenant may have at a time; no sample without a limit"},
       Limits([](const T& tenant) { return tenant.quota.sessions; })},
      {{"detshare_tenant_swapped_bytes", kGauge, "tenant",
        "Device memory of the tenant's sessions that is not on the card now"},
       OfTenants([](const T& tenant) { return tenant.use.counters.swap.out; })},
      {{"detshare_tenant_swap_out_bytes_total", kCounter, "tenant",
        "Bytes that were moved from the card to host memory, to make room"},
       OfTenants([](const T& tenant) { return tenant.use.counters.swap.bytes_out; })},
      {{"detshare_tenant_swap_in_bytes_total", kCounter, "tenant",
        "Bytes that came back to the card"},
       OfTenants([](const T& tenant) { return tenant.use.counters.swap.bytes_in; })},
      {{"detshare_tenant_swap_seconds_total", kCounter, "tenant", "Time that these moves took"},
       OfTenants([](const T& tenant) { return Seconds(tenant.use.counters.swap.nanoseconds); })},
      {{"detshare_tenant_sm_seconds_total", kCounter, "tenant,class",
        "SMs of the partition times the time with work there; sessions that use the same SMs "
        "share them (sampled)"},
       OfTenantsAndClasses([](const T& tenant) { return tenant.samples.sm_seconds; })},
      {{"detshare_tenant_busy_seconds_total", kCounter, "tenant",
        "Time in which the tenant had work on a device (sampled)"},
       OfTenants([](const T& tenant) { return tenant.samples.busy_seconds; })},
      {{"detshare_tenant_work_seconds_total", kCounter, "tenant,class",
        "Estimated time of the work, as if alone on the whole device (followed)"},
       OfTenantsAndClasses([](const T& tenant) { return Seconds(tenant.work.device_time); })},
      {{"detshare_tenant_memory_bound_seconds_total", kCounter, "tenant",
        "The part of detshare_tenant_work_seconds_total in operations that wait for memory and "
        "not for SMs (followed)"},
       OfTenants([](const T& tenant) { return Seconds(tenant.work.memory_bound); })},
      {{"detshare_tenant_memory_traffic_bytes_total", kCounter, "tenant",
        "Estimated memory traffic of these operations: their time at the device's peak "
        "bandwidth (followed)"},
       OfTenants([](const T& tenant) { return tenant.memory_traffic; })},
      {{"detshare_tenant_waiting_seconds_total", kCounter, "tenant,cause",
        "Time in which sessions were throttled, by cause: window (it was full), budget (it was "
        "used up) (followed)"},
       [](const O& seen, Out& out) {
         for (const auto& [name, tenant] : seen.tenants) {
           out.Add({{"tenant", name}, {"cause", "window"}},
                   Seconds(tenant.work.throttled_by_window));
           out.Add({{"tenant", name}, {"cause", "budget"}},
                   Seconds(tenant.work.throttled_by_budget));
         }
       }},
      {{"detshare_throttles_overruled_total", kCounter, "tenant",
        "Operations that were given to the hardware because they had been throttled for the "
        "maximum time (followed)"},
       OfTenants([](const T& tenant) { return tenant.work.passes; })},
      {{"detshare_tenant_collecting_seconds_total", kCounter, "tenant",
        "Time in which operations of urgent sessions were left with the client, to be submitted "
        "together: other sessions had the device (followed)"},
       OfTenants([](const T& tenant) { return Seconds(tenant.work.collecting); })},
      {{"detshare_tenant_collections_total", kCounter, "tenant",
        "How often operations were collected so (followed)"},
       OfTenants([](const T& tenant) { return tenant.work.collections; })},
      {{"detshare_migrations_total", kCounter, "tenant",
        "Moves of a stream from one partition to another"},
       OfTenants([](const T& tenant) { return tenant.use.counters.migrations; })},
      {{"detshare_resizes_total", kCounter, "tenant",
        "Decisions that gave a session another partition"},
       OfTenants([](const T& tenant) { return tenant.work.resizes; })},
      {{"detshare_tokens_total", kCounter, "tenant", "Tokens of recognised generation (followed)"},
       OfTenants([](const T& tenant) { return tenant.work.tokens; })},
      {{"detshare_slo_seconds", kGauge, "tenant,slo",
        "Objective of the tenant: latency (of a burst), ttft, tpot; no sample without an "
        "objective"},
       [](const O& seen, Out& out) {
         for (const auto& [name, tenant] : seen.tenants) {
           const policy::Tenant& promised = tenant.tenant;
           if (promised.slo_latency > 0)
             out.Add({{"tenant", name}, {"slo", "latency"}}, Seconds(promised.slo_latency));
           if (promised.slo_ttft > 0)
             out.Add({{"tenant", name}, {"slo", "ttft"}}, Seconds(promised.slo_ttft));
           if (promised.slo_tpot > 0)
             out.Add({{"tenant", name}, {"slo", "tpot"}}, Seconds(promised.slo_tpot));
         }
       }},
      {{"detshare_slo_violations_total", kCounter, "tenant,slo",
        "Bursts, first tokens and tokens that took longer than the objective (followed)"},
       [](const O& seen, Out& out) {
         for (const auto& [name, tenant] : seen.tenants) {
           out.Add({{"tenant", name}, {"slo", "latency"}}, tenant.work.late_bursts);
           out.Add({{"tenant", name}, {"slo", "ttft"}}, tenant.work.late_first_tokens);
           out.Add({{"tenant", name}, {"slo", "tpot"}}, tenant.work.late_tokens);
         }
       }},
      {{"detshare_throttle_duration_seconds", kHistogram, "tenant",
        "How long a session was throttled, each time that it was (followed)"},
       OfTenants([](const T& tenant) -> const DurationCounts& { return tenant.work.throttles; })},
      {{"detshare_operation_duration_seconds", kHistogram, "tenant",
        "Time on the device of the operations that were timed (followed)"},
       OfTenants([](const T& tenant) -> const DurationCounts& { return tenant.work.operations; })},
      {{"detshare_burst_duration_seconds", kHistogram, "tenant",
        "Time from the first operation of a burst until all of its work was complete (followed)"},
       OfTenants([](const T& tenant) -> const DurationCounts& { return tenant.work.bursts; })},
      {{"detshare_time_to_first_token_seconds", kHistogram, "tenant",
        "Time from the first operation of a prefill until its result was read (followed)"},
       OfTenants(
           [](const T& tenant) -> const DurationCounts& { return tenant.work.first_tokens; })},
      {{"detshare_time_per_output_token_seconds", kHistogram, "tenant",
        "Time between two tokens of one generation (followed)"},
       OfTenants(
           [](const T& tenant) -> const DurationCounts& { return tenant.work.tokens_apart; })},
      // ---- engines
      {{"detshare_engine_up", kGauge, "group",
        "1 while the group's engine replies, 0 while it runs and does not reply; no sample while "
        "there is none"},
       OfEngines(Runs, [](const E& engine) { return uint64_t{engine.responds}; })},
      {{"detshare_engine_starts_total", kCounter, "group", "Engines that the group has had"},
       OfEngines(Known, [](const E& engine) { return engine.starts; })},
      {{"detshare_engine_failures_total", kCounter, "group",
        "Engines of the group that ended without a request to end"},
       OfEngines(Known, [](const E& engine) { return engine.failures; })},
      {{"detshare_engine_timeouts_total", kCounter, "group",
        "Requests for figures to which the group's engine did not reply in time"},
       OfEngines(Known, [](const E& engine) { return engine.timeouts; })},
      {{"detshare_engine_sessions", kGauge, "group", "Sessions of the group that are open"},
       OfEngines(Responds, [](const E& engine) { return engine.sessions; })},
      {{"detshare_engine_cpu_seconds_total", kCounter, "group", "CPU time of the group's engines"},
       OfEngines(Known, [](const E& engine) { return engine.cpu_seconds; })},
      {{"detshare_engine_resident_memory_bytes", kGauge, "group",
        "Resident memory of the group's engine"},
       OfEngines(Responds, [](const E& engine) { return engine.resident_bytes; })},
      // ---- the daemon's process, under the names that all processes use
      {{"process_cpu_seconds_total", kCounter, "", "CPU time of the daemon"},
       Single([](const O& seen) { return seen.process.cpu_seconds; })},
      {{"process_resident_memory_bytes", kGauge, "", "Resident memory of the daemon"},
       Single([](const O& seen) { return seen.process.resident_bytes; })},
      {{"process_virtual_memory_bytes", kGauge, "", "Address space of the daemon"},
       Single([](const O& seen) { return seen.process.virtual_bytes; })},
      {{"process_open_fds", kGauge, "", "Open files of the daemon"},
       Single([](const O& seen) { return seen.process.open_files; })},
      {{"process_max_fds", kGauge, "", "Files that the daemon may open"},
       Single([](const O& seen) { return seen.process.max_files; })},
      {{"process_threads", kGauge, "", "Threads of the daemon"},
       Single([](const O& seen) { return seen.process.threads; })},
      {{"process_start_time_seconds", kGauge, "",
        "When the daemon's process began, in seconds since 1970"},
       Single([](const O& seen) { return seen.process.start_time; })},
  };
  return *entries;
}

}  // namespace

std::span<const Metric> AllMetrics() {
  static const std::vector<Metric>* const metrics = [] {
    auto* all = new std::vector<Metric>;
    for (const Entry& entry : Entries()) all->push_back(entry.metric);
    return all;
  }();
  return *metrics;
}

std::string MetricsText(const Observation& observation) {
  Exposition out;
  for (const Entry& entry : Entries()) {
    out.Begin(entry.metric);
    entry.add(observation, out);
  }
  return out.text();
}

}  // namespace detshare
