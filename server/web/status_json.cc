#include "server/web/status_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "proto/owner.h"
#include "proto/ring_abi.h"
#include "proto/version.h"
#include "server/services/settings_store.h"

namespace detshare {
namespace {

using nlohmann::ordered_json;

std::string Dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

double Milliseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; }

// Returns null if there are no durations.
ordered_json Tail(const DurationCounts& counts) {
  const uint64_t total = counts.total();
  if (total == 0) return nullptr;
  return {{"count", total},
          {"p50_ms", Milliseconds(counts.Quantile(0.5))},
          {"p99_ms", Milliseconds(counts.Quantile(0.99))}};
}

ordered_json Promised(policy::Nanoseconds slo) {
  return slo > 0 ? ordered_json(Milliseconds(slo)) : ordered_json();
}

// Returns null if nobody is known.
ordered_json OwnerJson(const proto::Owner& owner) {
  if (IsEmpty(owner)) return nullptr;
  return {{"text", OwnerText(owner)}, {"namespace", owner.namespace_()},
          {"pod", owner.pod()},       {"container", owner.container()},
          {"user", owner.user()},     {"job", owner.job()}};
}

ordered_json Limit(uint64_t limit) { return limit != 0 ? ordered_json(limit) : ordered_json(); }

ordered_json DeviceJson(const DeviceObservation& device) {
  ordered_json partitions = ordered_json::array();
  for (const auto& partition : device.partitions) {
    partitions.push_back({{"name", partition.name},
                          {"first_sm", partition.first_sm},
                          {"sm_count", partition.sm_count},
                          {"sessions", partition.sessions}});
  }
  return {{"name", device.name},
          {"uuid", device.uuid},
          {"healthy", device.health.ok()},
          {"state", device.health.ok() ? "ok" : std::string(device.health.message())},
          {"sm_count", device.sm_count},
          {"memory", {{"total", device.total_memory}, {"used", device.used_memory}}},
          {"partitions", std::move(partitions)},
          {"preemption",
           {{"mode", device.preemption.mode()},
            {"latency_us", device.preemption.latency_ns / 1000},
            {"memory", device.preemption.memory_bytes},
            {"reason", device.preemption.reason}}},
          {"beside_native", device.beside_native}};
}

ordered_json TenantJson(const TenantObservation& tenant, const RecentTenant& recent) {
  const SessionCounters& counters = tenant.use.counters;
  ordered_json waits = ordered_json::array();
  for (const auto& [holder, seconds] : recent.waits_for)
    waits.push_back({{"for", holder}, {"seconds", seconds}});
  return {
      {"name", tenant.tenant.name},
      {"owner", OwnerJson(tenant.owner)},
      {"class", NameOf(tenant.tenant.tenant_class)},
      {"exclusive", tenant.tenant.exclusive},
      {"sessions", tenant.use.open},
      {"device_memory", counters.device_memory},
      {"device_memory_limit", Limit(tenant.quota.memory)},
      {"swapped_memory", counters.swap.out},
      {"pinned_memory", counters.pinned_memory},
      {"operations", counters.operations},
      {"kernels", counters.kernels},
      {"bytes_copied", counters.bytes_copied},
      {"migrations", counters.migrations},
      {"resizes", tenant.work.resizes},
      {"faults", tenant.use.faulted},
      {"sm_seconds", tenant.samples.sm_seconds},
      {"promised_ms",
       {{"burst", Promised(tenant.tenant.slo_latency)},
        {"first_token", Promised(tenant.tenant.slo_ttft)},
        {"token", Promised(tenant.tenant.slo_tpot)}}},
      {"recent",
       {{"seconds", recent.seconds},
        {"bursts", Tail(recent.work.bursts)},
        {"throttles", Tail(recent.work.throttles)},
        {"operations", Tail(recent.work.operations)},
        {"first_tokens", Tail(recent.work.first_tokens)},
        {"tokens", Tail(recent.work.tokens_apart)},
        {"late", recent.work.late_bursts + recent.work.late_first_tokens + recent.work.late_tokens},
        {"waits_for", std::move(waits)}}},
  };
}

ordered_json SessionJson(const SessionObservation& session) {
  ordered_json places = ordered_json::array();
  bool throttled = false;
  for (const PlaceObservation& place : session.places) {
    throttled = throttled || place.throttled;
    places.push_back({{"device", place.device},
                      {"partition", place.partition},
                      {"first_sm", place.first_sm},
                      {"sm_count", place.sm_count},
                      {"followed", place.followed},
                      {"throttled", place.throttled},
                      {"bound", place.bound},
                      {"rank", place.followed ? ordered_json(place.rank) : ordered_json()}});
  }
  // The members partition, first_sm, sm_count, followed, rank and bound describe the first device;
  // `devices` has all devices.
  static const PlaceObservation* const nowhere = new PlaceObservation;
  const PlaceObservation& first = session.places.empty() ? *nowhere : session.places.front();
  return {{"session", session.id},
          {"group", session.group.empty() ? ordered_json() : ordered_json(session.group)},
          {"tenant", session.tenant},
          {"pid", session.pid},
          {"program", session.program},
          {"state", session.state},
          {"open", session.open},
          {"age_ms", session.age_ms},
          {"partition", first.partition},
          {"first_sm", first.first_sm},
          {"sm_count", first.sm_count},
          {"followed", first.followed},
          {"throttled", throttled},
          {"bound", first.bound},
          {"rank", first.followed ? ordered_json(first.rank) : ordered_json()},
          {"devices", std::move(places)},
          {"device_memory", session.device_memory},
          {"operations", session.operations},
          {"kernels", session.kernels}};
}

ordered_json EngineJson(const std::string& group, const EngineObservation& engine) {
  return {{"group", group},
          {"runs", engine.runs},
          {"responds", engine.responds},
          {"sessions", engine.sessions},
          {"starts", engine.starts},
          {"failures", engine.failures},
          {"timeouts", engine.timeouts}};
}

}  // namespace

std::string StatusJson(const Observation& seen, const std::map<std::string, RecentTenant>& recent) {
  ordered_json devices = ordered_json::array(), tenants = ordered_json::array(),
               sessions = ordered_json::array(), engines = ordered_json::array();
  for (const DeviceObservation& device : seen.devices) devices.push_back(DeviceJson(device));
  for (const auto& [name, tenant] : seen.tenants) {
    const auto found = recent.find(name);
    tenants.push_back(TenantJson(tenant, found != recent.end() ? found->second : RecentTenant()));
  }
  for (const auto& session : seen.sessions) sessions.push_back(SessionJson(session));
  for (const auto& [group, engine] : seen.engines) engines.push_back(EngineJson(group, engine));
  uint64_t refused = 0;
  for (const auto& [code, count] : seen.refusals) refused += count;
  return Dump({{"version", kVersion},
               {"abi", kAbiVersion},
               {"backend", seen.backend},
               {"policy", seen.policy},
               {"unix_ms", seen.unix_ms},
               {"uptime_seconds", seen.uptime_seconds},
               {"device_losses", seen.device_losses},
               {"max_sessions", seen.max_sessions},
               {"refused", refused},
               {"swap", {{"limit", seen.swap_limit}, {"used", seen.swap_used}}},
               {"devices", std::move(devices)},
               {"tenants", std::move(tenants)},
               {"sessions", std::move(sessions)},
               {"engines", std::move(engines)}});
}

std::string HistoryJson(const History& history, uint64_t after) {
  ordered_json points = ordered_json::array();
  for (const HistoryPoint& point : history.points()) {
    if (point.number <= after) continue;
    ordered_json devices = ordered_json::array();
    for (const DevicePoint& device : point.devices)
      devices.push_back({{"busy", device.busy_share}, {"memory", device.used_memory}});
    ordered_json tenants = ordered_json::object();
    for (const auto& [name, tenant] : point.tenants) {
      ordered_json ranges = ordered_json::array();
      for (const SmRange& range : tenant.ranges)
        ranges.push_back({range.device, range.first_sm, range.sm_count});
      const auto time = [](int64_t ns) {
        return ns == 0 ? ordered_json() : ordered_json(Milliseconds(ns));
      };
      tenants[name] = {{"sms", tenant.sm_share},           {"throttled", tenant.throttled_share},
                       {"operations", tenant.operations},  {"tokens", tenant.tokens},
                       {"memory", tenant.device_memory},   {"bursts", tenant.bursts},
                       {"ranges", std::move(ranges)},      {"p50_ms", time(tenant.burst_p50)},
                       {"p99_ms", time(tenant.burst_p99)}, {"tpot_p99_ms", time(tenant.tpot_p99)}};
    }
    points.push_back({{"number", point.number},
                      {"unix_ms", point.unix_ms},
                      {"seconds", point.seconds},
                      {"devices", std::move(devices)},
                      {"tenants", std::move(tenants)}});
  }
  return Dump({{"points", std::move(points)}});
}

}  // namespace detshare
