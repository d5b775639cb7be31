// The observer's samples and the history that it keeps, without a daemon.
#include "server/web/history.h"

#include <catch2/catch.hpp>

#include "server/web/sampler.h"

namespace detshare {
namespace {

Look Busy(const std::string& tenant, int sms, int rank = 0, int first_sm = 0) {
  return {.tenant = tenant,
          .first_sm = first_sm,
          .sm_count = sms,
          .busy = true,
          .has_work = true,
          .rank = rank};
}
Look Throttled(const std::string& tenant, int rank) {
  return {.tenant = tenant, .sm_count = 8, .throttled = true, .has_work = true, .rank = rank};
}

TEST_CASE("SM-time is that of the partition while there is work, and shared SMs are divided") {
  Sampler sampler(2);
  sampler.Count(0, {Busy("a", 32), Busy("b", 100, 0, 32)}, 0.5);
  sampler.Count(1, {Busy("a", 132)}, 0.5);
  CHECK(sampler.tenants().at("a").sm_seconds == 0.5 * 32 + 0.5 * 132);
  CHECK(sampler.tenants().at("b").sm_seconds == 50);
  CHECK(sampler.device_busy() == std::vector<double>{0.5, 0.5});
  Sampler shared(1);
  shared.Count(0, {Busy("a", 132), Busy("b", 32)}, 1);
  CHECK(shared.tenants().at("a").sm_seconds == 100 + 16);
  CHECK(shared.tenants().at("b").sm_seconds == 16);
}

TEST_CASE("Two sessions of a tenant make it busy once") {
  Sampler sampler(1);
  sampler.Count(0, {Busy("a", 32), Busy("a", 32)}, 1);
  CHECK(sampler.tenants().at("a").busy_seconds == 1);
  CHECK(sampler.tenants().at("a").sm_seconds == 32);
}

TEST_CASE(
    "A throttled tenant waits for those of lower rank, else for those that work, else for itself") {
  Sampler sampler(1);
  sampler.Count(0, {Throttled("low", 5), Busy("first", 8, 0), Busy("same", 8, 5)}, 1);
  CHECK(sampler.tenants().at("low").waits_for == WaitsFor{{"first", 1}});
  sampler.Count(0, {Throttled("low", 5), Busy("same", 8, 5)}, 2);
  CHECK(sampler.tenants().at("low").waits_for == WaitsFor{{"first", 1}, {"same", 2}});
  sampler.Count(0, {Throttled("low", 5)}, 4);
  CHECK(sampler.tenants().at("low").waits_for == WaitsFor{{"first", 1}, {"low", 4}, {"same", 2}});
}

TEST_CASE("Names above the maximum are counted together") {
  Sampler sampler(1);
  for (int i = 0; i < 1000; ++i) sampler.Count(0, {Busy("t" + std::to_string(i), 1)}, 1);
  CHECK(sampler.tenants().size() == kMaxTenantsApart + 1);
  CHECK(sampler.tenants().at(kOtherTenants).sm_seconds == 1000 - kMaxTenantsApart);
}

Observation At(double seconds, uint64_t operations = 0, double sm_seconds = 0) {
  Observation seen;
  seen.at_ns = 1 + static_cast<int64_t>(seconds * 1e9);
  seen.unix_ms = static_cast<int64_t>(seconds * 1e3);
  seen.devices.resize(1);
  seen.devices[0].sm_count = 100;
  seen.devices[0].busy_seconds = seconds / 2;
  TenantObservation& tenant = seen.tenants["a"];
  tenant.use.open = 1;
  tenant.use.counters.operations = operations;
  tenant.samples.sm_seconds = sm_seconds;
  return seen;
}

TEST_CASE("A point has what happened since the point before") {
  History history;
  history.Add(At(10));
  CHECK(history.points().empty());
  history.Add(At(12, 100, 50));
  REQUIRE(history.points().size() == 1);
  const HistoryPoint& point = history.points()[0];
  CHECK(point.number == 1);
  CHECK(point.seconds == 2);
  CHECK(point.devices[0].busy_share == 0.5);
  CHECK(point.tenants.at("a").operations == 50);
  CHECK(point.tenants.at("a").sm_share == 0.25);
}

TEST_CASE("A point has the places of each tenant's work, each once and a bounded number") {
  History history;
  history.Add(At(1));
  Observation seen = At(2);
  for (int i = 0; i < 40; ++i) {
    SessionObservation& session = seen.sessions.emplace_back();
    session.tenant = i < 2 ? "a" : i < 4 ? "nobody" : "b";
    for (const int device : {0, 3}) {
      PlaceObservation& place = session.places.emplace_back();
      place.device = device;
      place.first_sm = i < 4 ? 8 : i;
      place.sm_count = 16;
    }
  }
  seen.sessions.emplace_back().tenant = "a";  // it has no values yet
  seen.tenants["b"].use.open = 36;
  history.Add(seen);
  const HistoryPoint& point = history.points().back();
  CHECK(point.tenants.at("a").ranges == std::vector<SmRange>{{0, 8, 16}, {3, 8, 16}});
  CHECK(point.tenants.at("b").ranges.size() == History::kMaxRanges);
  CHECK_FALSE(point.tenants.contains("nobody"));
}

TEST_CASE("A history is no longer than allowed, whatever happens, and goes on counting") {
  History history;
  for (int i = 0; i < 2000; ++i) {
    Observation seen = At(i);
    for (int tenant = 0; tenant < 60; ++tenant)
      seen.tenants["t" + std::to_string(tenant)].use.open = 1;
    history.Add(seen);
  }
  CHECK(history.points().size() == History::kMaxPoints);
  CHECK(history.points().back().number == 1999);
  for (const HistoryPoint& point : history.points())
    CHECK(point.tenants.size() == History::kMaxTenants);
}

TEST_CASE("Recent values are of the last minute") {
  History history;
  LatencyHistogram bursts;
  const auto at = [&](double seconds) {
    Observation seen = At(seconds);
    seen.tenants["a"].work.bursts = DurationCounts(bursts);
    seen.tenants["a"].samples.waits_for["b"] = seconds;
    return seen;
  };
  for (int i = 0; i < 100; ++i) bursts.Add(1'000'000);
  for (int second = 0; second < 200; ++second) history.Add(at(second));
  for (int i = 0; i < 7; ++i) bursts.Add(1'000'000);
  const auto recent = history.Recent(at(200));
  CHECK(recent.at("a").work.bursts.total() == 7);
  CHECK(recent.at("a").seconds >= 59);
  CHECK(recent.at("a").seconds <= 71);
  CHECK(recent.at("a").waits_for.at("b") == Approx(recent.at("a").seconds));
}

}  // namespace
}  // namespace detshare
