#include "policy/tpot_first/tpot_first.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "policy/best_effort_limits.h"
#include "policy/partition_pool.h"
#include "policy/registry.h"
#include "tests/policy/device_shapes.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

constexpr Nanoseconds kNow = 100 * kSecond;

struct Scene {
  std::vector<Tenant> tenants;
  std::vector<CoroutineView> views;
  std::vector<OtherEngineView> others;
  std::vector<SmRange> partitions = {SmRange{}};

  Scene() {
    for (const SmRange& range : StandardPartitions({132, 8})) partitions.push_back(range);
  }

  CoroutineView& Add(const std::string& name, TenantClass tenant_class = TenantClass::kUnset) {
    Tenant tenant;
    tenant.name = name;
    tenant.tenant_class = tenant_class;
    tenant.slo_tpot = 40 * kMillisecond;
    tenant.slo_ttft = kSecond;
    if (tenant_class != TenantClass::kUnset) tenant.slo_tpot = tenant.slo_ttft = 0;
    tenants.push_back(tenant);
    CoroutineView view;
    view.id = views.size() + 1;
    view.has_work = true;
    view.changed_at = kNow;
    views.push_back(view);
    return views.back();
  }
  // Its last token was `since` ago, and its next token takes `work`.
  void Decoding(const std::string& name, Nanoseconds since, Nanoseconds work) {
    CoroutineView& view = Add(name);
    view.tokens.tokens = 10;
    view.tokens.last_at = kNow - since;
    view.tokens.decode_work = work;
  }
  void Prefilling(const std::string& name, Nanoseconds since) {
    CoroutineView& view = Add(name);
    view.tokens.tokens = 10;
    view.tokens.prefill = true;
    view.tokens.prefill_since = kNow - since;
  }

  // The programs run on a device that preempts.
  void Preempt() {
    for (CoroutineView& view : views) view.preempts = true;
  }

  Decision Decide(const Options& options = {}) {
    for (size_t i = 0; i < views.size(); ++i) views[i].tenant = &tenants[i];
    Snapshot snapshot;
    snapshot.now = kNow;
    snapshot.device = {132, 8};
    snapshot.partitions = partitions;
    snapshot.tenants = tenants;
    snapshot.coroutines = views;
    snapshot.other_engines = others;
    return (*CreatePolicy("tpot-first", options))->Decide(snapshot);
  }
  std::vector<int> Ranks() {
    std::vector<int> ranks;
    for (const Grant& grant : Decide().grants) ranks.push_back(grant.rank);
    return ranks;
  }
};

TEST_CASE("Policy tpot-first ranks decoding programs by the time left to their objective") {
  Scene scene;
  scene.Decoding("fresh", 0, 5 * kMillisecond);
  scene.Decoding("near", 20 * kMillisecond, 5 * kMillisecond);
  scene.Decoding("urgent", 30 * kMillisecond, 5 * kMillisecond);
  scene.Decoding("late", 80 * kMillisecond, 5 * kMillisecond);
  scene.Decoding("slow", 0, 35 * kMillisecond);
  CHECK(scene.Ranks() == std::vector<int>{3, 2, 1, 1, 1});
}

TEST_CASE("Policy tpot-first asks again when the next rank changes") {
  Scene scene;
  scene.Decoding("a", 0, 10 * kMillisecond);
  // The next token is near from 40 - 10 - 20 ms on.
  CHECK(scene.Decide().ask_again_at == kNow + 10 * kMillisecond);
  scene.Prefilling("b", 495 * kMillisecond);
  CHECK(scene.Decide().ask_again_at == kNow + 5 * kMillisecond);
}

TEST_CASE(
    "Policy tpot-first gives prefills the time that decoding leaves, and raises waiting ones") {
  Scene scene;
  scene.Decoding("decode", 0, 5 * kMillisecond);
  scene.Prefilling("new", 0);
  scene.Prefilling("waiting", 500 * kMillisecond);
  scene.Prefilling("nearly late", 800 * kMillisecond);
  CHECK(scene.Ranks() == std::vector<int>{3, 4, 2, 1});
  const Decision decision = scene.Decide();
  const Grant& prefill = decision.grants[1];
  CHECK(SmsOf({132, 8}, scene.partitions[prefill.contended.partition]) == 64);
  CHECK(prefill.contended.window == kMillisecond);
  CHECK(decision.grants[2].idle.window == kForever);
  CHECK(decision.grants[3].contended.partition == 0);
}

TEST_CASE(
    "Policy tpot-first ranks a prefill by the tokens that wait for it while they can be in time") {
  Scene scene;
  const auto serving = [&](const char* name, Nanoseconds since, Nanoseconds work) {
    scene.Prefilling(name, since);
    scene.views.back().tokens.last_at = kNow - since;
    scene.views.back().tokens.step_work = work;
  };
  serving("in time", kMillisecond, 25 * kMillisecond);
  serving("urgent", 20 * kMillisecond, 15 * kMillisecond);
  serving("too long", kMillisecond, 60 * kMillisecond);
  serving("late already", 41 * kMillisecond, 30 * kMillisecond);
  CHECK(scene.Ranks() == std::vector<int>{2, 1, 4, 4});
}

TEST_CASE("Policy tpot-first lets decoding with slack wait for a program closer to its objective") {
  Scene scene;
  scene.Decoding("fresh", 0, 5 * kMillisecond);
  scene.Decoding("urgent", 30 * kMillisecond, 5 * kMillisecond);
  const Decision decision = scene.Decide();
  CHECK(decision.grants[0].contended.window == 0);
  CHECK(decision.grants[0].idle.window == kForever);
  CHECK_FALSE(decision.grants[0].urgent);
  CHECK(decision.grants[1].urgent);
  CHECK(decision.grants[1].contended.window == kForever);
}

TEST_CASE("Policy tpot-first makes a server of a latency tenant urgent until it makes tokens") {
  Scene scene;
  scene.Add("server");
  scene.tenants.back().tenant_class = TenantClass::kLatency;
  CHECK(scene.Ranks() == std::vector<int>{2});
  CHECK(scene.Decide().grants[0].urgent);
  scene.views.back().tokens.tokens = 10;
  scene.views.back().tokens.last_at = kNow;
  CHECK(scene.Ranks() == std::vector<int>{3});
  CHECK_FALSE(scene.Decide().grants[0].urgent);
}

TEST_CASE("Policy tpot-first stops prefills while a decoding program is urgent") {
  Scene scene;
  scene.Decoding("urgent", 39 * kMillisecond, 5 * kMillisecond);
  scene.Prefilling("new", 0);
  CHECK(scene.Decide().grants[1].contended.window == 0);
}

TEST_CASE("Policy tpot-first puts tokens before tenants without a class, and these before batch") {
  Scene scene;
  scene.Decoding("decode", 0, 5 * kMillisecond);
  scene.Add("batch", TenantClass::kBatch);
  scene.Add("latency", TenantClass::kLatency);
  scene.Add("unset").tokens = {};
  scene.tenants.back().slo_tpot = scene.tenants.back().slo_ttft = 0;
  CHECK(scene.Ranks() == std::vector<int>{3, 6, 0, 5});
  const Decision decision = scene.Decide();
  CHECK(decision.grants[1].contended.window == 0);
  CHECK(decision.grants[3].contended.window == 0);
  CHECK(decision.grants[2].contended.window == kForever);
}

TEST_CASE("Policy tpot-first orders latency tenants without tokens by their SLOs") {
  Scene scene;
  scene.Add("long", TenantClass::kLatency).longest_operation = kMillisecond;
  scene.Add("short", TenantClass::kLatency);
  scene.Add("longer", TenantClass::kLatency);
  scene.Decoding("urgent", 39 * kMillisecond, 5 * kMillisecond);
  scene.tenants[0].slo_latency = 40 * kMillisecond;
  scene.tenants[1].slo_latency = 10 * kMillisecond;
  scene.tenants[2].slo_latency = kSecond;
  scene.Preempt();
  CHECK(scene.Ranks() == std::vector<int>{1, 0, 1, 1});
  const Decision decision = scene.Decide();
  CHECK(decision.grants[0].contended.window == 0);
  CHECK(decision.grants[0].idle.window == 1030 * kMicrosecond);
  CHECK(decision.grants[1].contended.window == kForever);
  CHECK(decision.grants[1].idle.window == kForever);
  CHECK(decision.grants[2].idle.window == 100 * kMicrosecond);
  // Tokens wait for no latency tenant, and no latency tenant for tokens.
  CHECK(decision.grants[3].contended.window == kForever);
  scene.views.erase(scene.views.begin() + 1);
  scene.tenants.erase(scene.tenants.begin() + 1);
  CHECK(scene.Decide().grants[0].contended.window == kForever);
}

TEST_CASE("Policy tpot-first uses its own objectives for tenants that have none") {
  Scene scene;
  scene.Decoding("decode", 20 * kMillisecond, 0);
  scene.tenants[0].slo_tpot = 0;
  CHECK(scene.Decide().grants[0].rank == 3);
  CHECK(scene.Decide({{{"tpot", "20ms"}}}).grants[0].rank == 1);
}

TEST_CASE("Policy tpot-first makes programs close to their objective urgent, and latency tenants") {
  Scene scene;
  scene.Decoding("relaxed", 0, 5 * kMillisecond);
  scene.Decoding("near", 20 * kMillisecond, 5 * kMillisecond);
  scene.Decoding("late", 80 * kMillisecond, 5 * kMillisecond);
  scene.Prefilling("prefill", 0);
  scene.Prefilling("raised prefill", 500 * kMillisecond);
  scene.Add("latency", TenantClass::kLatency);
  scene.Add("batch", TenantClass::kBatch);
  std::vector<bool> urgent;
  for (const Grant& grant : scene.Decide().grants) urgent.push_back(grant.urgent);
  CHECK(urgent == std::vector<bool>{false, true, true, false, true, true, false});
}

TEST_CASE("Policy tpot-first shortens the contention phase only of programs without tokens") {
  Scene scene;
  scene.Decoding("decode", 20 * kMillisecond, 5 * kMillisecond);
  scene.Prefilling("prefill", 0);
  scene.Add("latency", TenantClass::kLatency);
  const Decision decision = scene.Decide();
  CHECK(decision.grants[0].contention_phase == 1);
  CHECK(decision.grants[1].contention_phase == 1);
  CHECK(decision.grants[2].contention_phase == Approx(0.4));
}

TEST_CASE("Policy tpot-first bounds a prefill beside decoding, but not a prefill alone") {
  Scene scene;
  scene.Prefilling("prefill", 0);
  const Grant alone = scene.Decide().grants[0];
  CHECK(alone.idle.window == kForever);
  CHECK(alone.contended.window == kForever);
  scene.Decoding("decode", 0, 5 * kMillisecond);
  const Grant beside =
      scene.Decide({{{"prefill_window", "2ms"}, {"max_throttle", "7ms"}}}).grants[0];
  CHECK(beside.idle.window == 2 * kMillisecond);
  CHECK(beside.idle.partition == 0);
  CHECK(beside.contended.window == 2 * kMillisecond);
  CHECK(beside.contended.max_throttle == 7 * kMillisecond);
  CHECK(SmsOf({132, 8}, scene.partitions[beside.contended.long_partition]) == 64);
  CHECK(std::count(beside.prepare.begin(), beside.prepare.end(), beside.contended.partition) == 1);
}

TEST_CASE("Policy tpot-first uses its own objective of the first token if a tenant has none") {
  Scene scene;
  scene.Prefilling("prefill", 50 * kMillisecond);
  scene.tenants[0].slo_ttft = 0;
  CHECK(scene.Decide().grants[0].rank == 4);
  CHECK(scene.Decide({{{"ttft", "100ms"}}}).grants[0].rank == 2);
  CHECK(scene.Decide({{{"ttft", "60ms"}}}).grants[0].rank == 1);
}

// ---- devices that preempt

TEST_CASE("Policy tpot-first lets a step near its objective stop the prefill of another server") {
  Scene scene;
  SECTION("near") { scene.Decoding("server", 20 * kMillisecond, 5 * kMillisecond); }
  SECTION("urgent") { scene.Decoding("server", 39 * kMillisecond, 5 * kMillisecond); }
  scene.Prefilling("prefill", 0);
  scene.Preempt();
  const Decision decision = scene.Decide();
  CHECK(decision.grants[0].urgent);
  const Grant& prefill = decision.grants[1];
  CHECK_FALSE(prefill.urgent);
  for (const Limits& limits : {prefill.idle, prefill.contended, TailLimits(prefill)}) {
    CHECK(limits.window == kForever);
    CHECK(limits.partition == 0);
    CHECK(limits.long_partition == 0);
  }
  CHECK(prefill.prepare.empty());
}

TEST_CASE("Policy tpot-first lets a step with slack stop no work, and bounds prefills beside it") {
  Scene scene;
  scene.Decoding("server", 0, 5 * kMillisecond);
  scene.Prefilling("prefill", 0);
  scene.Add("batch", TenantClass::kBatch);
  const Decision without = scene.Decide();
  scene.Preempt();
  const Decision decision = scene.Decide();
  CHECK_FALSE(decision.grants[0].urgent);
  CHECK(decision.grants == without.grants);
  CHECK(decision.grants[1].contended.window == kMillisecond);
  CHECK(decision.grants[2].contended.window == 0);
}

TEST_CASE("Policy tpot-first bounds a prefill that urgent work cannot stop") {
  Scene scene;
  scene.Decoding("server", 39 * kMillisecond, 5 * kMillisecond);
  scene.Prefilling("prefill", 0);
  const Decision without = scene.Decide();
  CHECK(without.grants[1].contended.window == 0);
  scene.Preempt();
  SECTION("because the urgent program is bound to ordinary work") {
    scene.views[0].preempts = false;
  }
  SECTION("because the prefilling program is bound to urgent work") {
    scene.views[1].always_preempts = true;
  }
  CHECK(scene.Decide().grants == without.grants);
}

TEST_CASE("Policy tpot-first stops a prefill that urgent work of another engine cannot stop") {
  Scene scene;
  scene.Prefilling("prefill", 0);
  scene.Preempt();
  scene.views[0].always_preempts = true;
  CHECK(scene.Decide().grants[0].contended.window == kForever);
  Tenant tenant;
  OtherEngineView& other = scene.others.emplace_back();
  other.coroutine.tenant = &tenant;
  other.coroutine.has_work = other.coroutine.preempts = other.urgent = true;
  other.coroutine.tokens.tokens = 10;
  other.rank = 1;
  CHECK(scene.Decide().grants[0].contended.window == 0);
  other.rank = 2;
  CHECK(scene.Decide().grants[0].contended.window == kMillisecond);
  // A decoding program here may be urgent, but ordinary work there is not.
  scene.Decoding("server", 0, 5 * kMillisecond);
  scene.views[1].preempts = true;
  other.rank = 1;
  other.urgent = false;
  CHECK(scene.Decide().grants[0].contended.window == kMillisecond);
  other.urgent = true;
  CHECK(scene.Decide().grants[0].contended.window == 0);
  other.coroutine.tokens.tokens = 0;
  CHECK(scene.Decide().grants[0].contended.window == kMillisecond);
  scene.views.pop_back();
  scene.tenants.pop_back();
  other.coroutine.tokens.tokens = 10;
  other.rank = 2;
  // The prefill stops it, and pauses for it if it takes long.
  other.coroutine.preempts = false;
  CHECK(scene.Decide().grants[0].contended.window == kLongBurstWindow);
}

TEST_CASE("Policy tpot-first lets decoding with slack go on beside a program that stops it") {
  Scene scene;
  scene.Decoding("fresh", 0, 5 * kMillisecond);
  scene.Decoding("urgent", 30 * kMillisecond, 5 * kMillisecond);
  scene.Preempt();
  CHECK(scene.Decide().grants[0].contended.window == kForever);
  // Another program with as little slack is not stopped, and keeps its place.
  scene.Decoding("near", 20 * kMillisecond, 5 * kMillisecond);
  scene.views.back().preempts = true;
  CHECK(scene.Ranks() == std::vector<int>{3, 1, 2});
}

TEST_CASE("Policy tpot-first keeps the order of work that is not urgent on devices that preempt") {
  Scene scene;
  scene.Add("latency", TenantClass::kLatency);
  scene.Add("batch", TenantClass::kBatch);
  scene.Preempt();
  CHECK(scene.Decide().grants[1].contended.window == kForever);
  scene.Add("unset").preempts = true;
  scene.tenants.back().slo_tpot = scene.tenants.back().slo_ttft = 0;
  CHECK(scene.Ranks() == std::vector<int>{0, 6, 5});
  const Decision decision = scene.Decide();
  CHECK(decision.grants[1].contended.window == 0);
  CHECK(decision.grants[2].contended.window == kForever);
}

TEST_CASE("Under policy tpot-first, the requests of a latency tenant stop best-effort work") {
  Tenant latency, batch;
  latency.tenant_class = TenantClass::kLatency;
  batch.tenant_class = TenantClass::kBatch;
  VirtualDevice device(kPreemptingH200, *CreatePolicy("tpot-first", {}));
  device.Open(latency, Periodic(kMillisecond, 5 * kMillisecond, {kMillisecond}));
  device.Open(batch, Steady({10 * kMillisecond}));
  device.Run(kSecond);
  CHECK(Quantile(device[0].latencies, 1) <= kMillisecond + kPreemptingH200.preemption);
  for (const auto& [work, range] : device[1].begun) CHECK(range.whole());
}

}  // namespace
}  // namespace detshare::policy
