// Adds up the observations of several users' processes as those of one daemon.
#include "server/web/engine_sum.h"

#include <catch2/catch.hpp>
#include <limits>

#include "server/web/metrics.h"
#include "server/web/observation_message.h"
#include "server/web/status_json.h"

namespace detshare {
namespace {

// The observation of a process that has run for `seconds`, in which one tenant kept the device
// busy.
Observation Seen(double seconds, const std::string& tenant = "a", uint64_t sessions = 1) {
  Observation seen;
  seen.backend = "soft";
  seen.policy = "auto";
  seen.max_sessions = 64;
  seen.devices.resize(1);
  seen.devices[0].sm_count = 100;
  seen.devices[0].total_memory = 1000;
  seen.devices[0].used_memory = 10 * sessions;
  seen.devices[0].busy_seconds = seconds;
  seen.devices[0].partitions = {{"all", 0, 100, static_cast<int>(sessions)}};
  TenantObservation& one = seen.tenants[tenant];
  one.tenant.name = tenant;
  one.use.opened = sessions;
  one.use.open = sessions;
  one.use.counters.operations = static_cast<uint64_t>(seconds * 100);
  one.use.counters.device_memory = 10 * sessions;
  one.samples.sm_seconds = 100 * seconds;
  one.samples.waits_for["b"] = seconds / 2;
  one.work.bursts.counts[10] = static_cast<uint64_t>(seconds);
  for (uint64_t i = 0; i < sessions; ++i) {
    SessionObservation& session = seen.sessions.emplace_back();
    session.id = 10 - i;
    session.tenant = tenant;
    session.open = true;
  }
  seen.refusals[absl::StatusCode::kInvalidArgument] = 1;
  seen.process.cpu_seconds = seconds;
  seen.process.resident_bytes = 5;
  return seen;
}

TEST_CASE("The counts of several processes are added up by tenant") {
  EngineSum sum;
  sum.Begun("ann", 1);
  sum.Begun("bob", 2);
  sum.Update({{1, Seen(1)}, {2, Seen(1, "a", 2)}}, 2);
  Observation all = sum.Sum();
  CHECK(all.tenants.size() == 1);
  CHECK(all.tenants.at("a").use.open == 3);
  CHECK(all.tenants.at("a").use.counters.operations == 200);
  CHECK(all.tenants.at("a").use.counters.device_memory == 30);
  CHECK(all.tenants.at("a").work.bursts.total() == 2);
  CHECK(all.refusals.at(absl::StatusCode::kInvalidArgument) == 2);
  CHECK(all.max_sessions == 128);
  // It is the same device, and each process sees all memory that is used on it.
  REQUIRE(all.devices.size() == 1);
  CHECK(all.devices[0].used_memory == 20);
  REQUIRE(all.devices[0].partitions.size() == 1);
  CHECK(all.devices[0].partitions[0].sessions == 3);
  REQUIRE(all.sessions.size() == 3);
  CHECK(all.sessions[0].id == 9);
  CHECK(all.sessions[0].group == "bob");
  CHECK(all.engines.at("bob").sessions == 2);
  CHECK(all.engines.at("ann").resident_bytes == 5);
}

TEST_CASE("The counts of a process stay when it has ended, and another process adds to them") {
  EngineSum sum;
  sum.Begun("ann", 1);
  sum.Update({{1, Seen(3)}}, 3);
  sum.Ended(1, EngineEnd::kAsked);
  Observation all = sum.Sum();
  CHECK(all.tenants.at("a").use.counters.operations == 300);
  CHECK(all.tenants.at("a").use.opened == 1);
  CHECK(all.tenants.at("a").samples.sm_seconds == 300);
  CHECK(all.tenants.at("a").use.open == 0);
  CHECK(all.tenants.at("a").use.counters.device_memory == 0);
  CHECK(all.sessions.empty());
  CHECK(all.devices.at(0).used_memory == 0);
  CHECK(all.devices.at(0).busy_seconds == 3);
  CHECK_FALSE(all.engines.at("ann").runs);
  CHECK(all.engines.at("ann").failures == 0);
  sum.Begun("ann", 7);
  // The new process has not replied yet, and no counter falls.
  CHECK(sum.Sum().tenants.at("a").use.counters.operations == 300);
  sum.Update({{7, Seen(1)}}, 1);
  all = sum.Sum();
  CHECK(all.tenants.at("a").use.counters.operations == 400);
  CHECK(all.tenants.at("a").work.bursts.total() == 4);
  CHECK(all.devices.at(0).busy_seconds == 4);
  CHECK(all.refusals.at(absl::StatusCode::kInvalidArgument) == 2);
  CHECK(all.engines.at("ann").starts == 2);
  CHECK(all.engines.at("ann").cpu_seconds == 4);
}

TEST_CASE("A silent process is counted and shows no present values, but its counts stay") {
  EngineSum sum;
  sum.Begun("ann", 1);
  sum.Begun("bob", 2);
  sum.Update({{1, Seen(1)}, {2, Seen(1, "b")}}, 2);
  sum.Missed(1);
  sum.Update({{2, Seen(2, "b")}}, 1);
  const Observation all = sum.Sum();
  CHECK(all.tenants.at("a").use.counters.operations == 100);
  CHECK(all.tenants.at("a").use.open == 0);
  CHECK(all.tenants.at("b").use.counters.operations == 200);
  CHECK(all.tenants.at("b").use.open == 1);
  CHECK(all.sessions.size() == 1);
  CHECK(all.engines.at("ann").timeouts == 1);
  CHECK_FALSE(all.engines.at("ann").responds);
  const std::string text = MetricsText(all);
  CHECK(text.find("detshare_engine_up{group=\"ann\"} 0\n") != std::string::npos);
  CHECK(text.find("detshare_engine_up{group=\"bob\"} 1\n") != std::string::npos);
  CHECK(text.find("detshare_engine_sessions{group=\"ann\"}") == std::string::npos);
  CHECK(text.find("detshare_engine_timeouts_total{group=\"ann\"} 1\n") != std::string::npos);
  // It replies again.
  sum.Update({{1, Seen(3)}}, 1);
  CHECK(sum.Sum().engines.at("ann").responds);
  CHECK(sum.Sum().tenants.at("a").use.counters.operations == 300);
}

TEST_CASE("Users that take turns on a device have at most the whole device together") {
  EngineSum sum;
  sum.Begun("ann", 1);
  sum.Begun("bob", 2);
  sum.Update({{1, Seen(0)}, {2, Seen(0, "b")}}, 1);
  // Each process says that it had the whole device for two seconds.
  sum.Update({{1, Seen(2)}, {2, Seen(2, "b")}}, 2);
  Observation all = sum.Sum();
  CHECK(all.tenants.at("a").samples.sm_seconds == Approx(100));
  CHECK(all.tenants.at("b").samples.sm_seconds == Approx(100));
  CHECK(all.devices.at(0).busy_seconds == Approx(2));
  CHECK(all.tenants.at("a").samples.waits_for.at("b") == Approx(1));
  // A process that was silent for a while has done its share during all that time.
  sum.Missed(1);
  sum.Update({{2, Seen(2, "b")}}, 8);
  sum.Update({{1, Seen(12)}}, 2);
  CHECK(sum.Sum().tenants.at("a").samples.sm_seconds == Approx(1100));
}

TEST_CASE("A lost device and other failures are distinguished") {
  EngineSum sum;
  for (pid_t process = 1; process <= 3; ++process) sum.Begun("ann", process);
  sum.Ended(1, EngineEnd::kAsked);
  sum.Ended(2, EngineEnd::kFailed);
  sum.Ended(3, EngineEnd::kDeviceLost);
  sum.Ended(3, EngineEnd::kDeviceLost);
  sum.Missed(3);
  CHECK(sum.Sum().engines.at("ann").starts == 3);
  CHECK(sum.Sum().engines.at("ann").failures == 2);
  CHECK(sum.Sum().device_losses == 1);
  CHECK(sum.Sum().engines.at("ann").timeouts == 0);
}

TEST_CASE("Names of tenants and users are bounded, whatever processes say") {
  EngineSum sum;
  for (pid_t process = 1; process <= 300; ++process) {
    sum.Begun("user" + std::to_string(process), process);
    sum.Update({{process, Seen(1, "tenant" + std::to_string(process))}}, 1);
    sum.Ended(process, EngineEnd::kAsked);
  }
  const Observation all = sum.Sum();
  CHECK(all.tenants.size() == kMaxTenantsApart + 1);
  CHECK(all.engines.size() == kMaxTenantsApart + 1);
  CHECK(all.tenants.at(kOtherTenants).use.opened == 300 - kMaxTenantsApart);
}

TEST_CASE("A tenant of an ended process makes room for another one after a while") {
  EngineSum sum;
  for (pid_t process = 1; process <= 200; ++process) {
    sum.Begun("user", process);
    sum.Update({{process, Seen(1, "tenant" + std::to_string(process))}}, 10);
    sum.Ended(process, EngineEnd::kAsked);
  }
  Observation all = sum.Sum();
  CHECK(all.tenants.contains("tenant200"));
  CHECK_FALSE(all.tenants.contains("tenant1"));
  CHECK_FALSE(all.tenants.contains(kOtherTenants));
  CHECK(all.tenants.size() == kMaxTenantsApart);
}

TEST_CASE("What a process no longer tells of stays counted") {
  EngineSum sum;
  sum.Begun("user", 1);
  sum.Update({{1, Seen(3, "a")}}, 1);
  sum.Update({{1, Seen(4, "b")}}, 1);
  CHECK(sum.Sum().tenants.at("a").use.counters.operations == 300);
  CHECK(sum.Sum().tenants.at("a").use.open == 0);
  sum.Update({{1, Seen(2, "a")}}, 1);
  CHECK(sum.Sum().tenants.at("a").use.counters.operations == 500);
  CHECK(sum.Sum().tenants.at("b").use.counters.operations == 400);
}

TEST_CASE("An observation arrives as it was sent") {
  Observation sent = Seen(3, "a", 2);
  sent.tenants.at("a").tenant.tenant_class = policy::TenantClass::kLatency;
  sent.tenants.at("a").tenant.slo_tpot = 30;
  sent.tenants.at("a").quota = {1, 2, 3};
  sent.tenants.at("a").charged_memory = {7, 8};
  sent.tenants.at("a").use.counters.swap.bytes_in = 4;
  sent.tenants.at("a").work.throttled_by_budget = 5;
  sent.tenants.at("a").work.first_tokens.counts.back() = 6;
  sent.tenants.at("a").memory_traffic = 0.5;
  sent.sessions[1].places = {{0, "sm0-7", 0, 8, true, true, 3, true}};
  sent.devices[0].preemption = {true, 190'000, 549'000'000, "why", true};
  sent.devices[0].beside_native = true;
  sent.devices[0].health = absl::InternalError("gone");
  proto::Observation message;
  ToMessage(sent, &message);
  const Observation got = FromMessage(message);
  // Everything that is shown of it is the same.
  CHECK(MetricsText(got) == MetricsText([&] {
          Observation same = sent;
          same.process = got.process;
          return same;
        }()));
  CHECK(got.process.cpu_seconds == 3);
  CHECK(got.tenants.at("a").work.throttled_by_budget == 5);
  CHECK(got.tenants.at("a").work.first_tokens.counts.back() == 6);
  CHECK(got.sessions.at(1).places.at(0).partition == "sm0-7");
  CHECK(got.sessions.at(1).places.at(0).throttled);
  CHECK(got.sessions.at(1).places.at(0).bound);
  CHECK(got.devices.at(0).preemption.available);
  CHECK(got.devices.at(0).preemption.latency_ns == 190'000);
  CHECK(got.devices.at(0).preemption.memory_bytes == 549'000'000);
  CHECK(got.devices.at(0).preemption.reason == "why");
  CHECK(got.devices.at(0).preemption.switched_off);
  CHECK(got.devices.at(0).beside_native);
  CHECK(got.devices.at(0).health.message() == "gone");
}

TEST_CASE("Metrics and the page's status say how each device preempts") {
  Observation seen = Seen(1, "a");
  seen.devices[0].preemption.reason = "why";
  CHECK_THAT(MetricsText(seen),
             Catch::Contains("detshare_device_preemption_info{device=\"0\",mode=\"none\"} 1\n"));
  CHECK_THAT(StatusJson(seen, {}), Catch::Contains("\"mode\":\"none\""));
  CHECK_THAT(StatusJson(seen, {}), Catch::Contains("\"reason\":\"why\""));
  CHECK_THAT(MetricsText(seen), Catch::Contains("detshare_device_beside_native{device=\"0\"} 0\n"));
  CHECK_THAT(StatusJson(seen, {}), Catch::Contains("\"beside_native\":false"));
  seen.devices[0].beside_native = true;
  CHECK_THAT(MetricsText(seen), Catch::Contains("detshare_device_beside_native{device=\"0\"} 1\n"));
  CHECK_THAT(StatusJson(seen, {}), Catch::Contains("\"beside_native\":true"));
  seen.devices[0].preemption = {true, 190'000, 549'000'000, "", false};
  const std::string metrics = MetricsText(seen);
  CHECK_THAT(metrics, Catch::Contains("detshare_device_preemption_info{device=\"0\",mode=\"time-"
                                      "slice groups\"} 1\n"));
  CHECK_THAT(metrics,
             Catch::Contains("detshare_device_preemption_latency_seconds{device=\"0\"} 0.00019\n"));
  CHECK_THAT(metrics,
             Catch::Contains("detshare_device_preemption_memory_bytes{device=\"0\"} 549000000\n"));
  CHECK_THAT(StatusJson(seen, {}), Catch::Contains("\"latency_us\":190"));
}

TEST_CASE("Impossible values of an observation are dropped") {
  proto::Observation message;
  proto::ObservedDevice* const device = message.add_devices();
  device->set_sm_count(-5);
  device->set_busy_seconds(std::numeric_limits<double>::quiet_NaN());
  proto::ObservedTenant* const tenant = message.add_tenants();
  tenant->set_name("a");
  tenant->set_tenant_class(99);
  for (int i = 0; i < 1000; ++i) tenant->mutable_bursts()->add_counts(1);
  tenant->set_sm_seconds(std::numeric_limits<double>::infinity());
  proto::ObservedSession* const session = message.add_sessions();
  session->add_places()->set_device(1);
  session->add_places()->set_device(-1);
  proto::ObservedPlace* const place = session->add_places();
  place->set_first_sm(-1);
  place->set_sm_count(-1);
  const Observation got = FromMessage(message);
  CHECK(got.devices.at(0).sm_count == 0);
  CHECK(got.devices.at(0).busy_seconds == 0);
  CHECK(got.tenants.at("a").tenant.tenant_class == policy::TenantClass::kUnset);
  CHECK(got.tenants.at("a").work.bursts.total() == LatencyHistogram::kBuckets);
  CHECK(got.tenants.at("a").samples.sm_seconds == 0);
  REQUIRE(got.sessions.at(0).places.size() == 1);
  CHECK(got.sessions[0].places[0].sm_count == 0);
}

}  // namespace
}  // namespace detshare
