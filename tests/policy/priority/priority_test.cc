#include "policy/priority/priority.h"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>

#include "policy/best_effort_limits.h"
#include "policy/partition_pool.h"
#include "policy/registry.h"
#include "tests/policy/device_shapes.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

Tenant Classed(std::string name, TenantClass tenant_class, Nanoseconds slo = 0) {
  Tenant tenant;
  tenant.name = std::move(name);
  tenant.tenant_class = tenant_class;
  tenant.slo_latency = slo;
  return tenant;
}

Decision DecideOn(const std::vector<Tenant>& tenants, std::vector<CoroutineView> views,
                  const Options& options = {}) {
  std::vector<SmRange> partitions = {SmRange{}};
  for (const SmRange& range : StandardPartitions({132, 8})) partitions.push_back(range);
  for (size_t i = 0; i < tenants.size(); ++i) {
    views[i].id = i + 1;
    views[i].tenant = &tenants[i];
  }
  Snapshot snapshot;
  snapshot.device = {132, 8};
  snapshot.partitions = partitions;
  snapshot.tenants = tenants;
  snapshot.coroutines = views;
  return (*CreatePolicy("priority", options))->Decide(snapshot);
}

Decision Decide(const std::vector<Tenant>& tenants, CoroutineView view = {},
                const Options& options = {}) {
  return DecideOn(tenants, std::vector<CoroutineView>(tenants.size(), view), options);
}

// Coroutines that preempt, as on a device with time-slice groups.
std::vector<CoroutineView> Preempting(size_t count) {
  CoroutineView view;
  view.preempts = true;
  return std::vector<CoroutineView>(count, view);
}

TEST_CASE("Policy priority ranks latency by SLO, then tenants without a class, then batch") {
  const Decision decision = Decide({
      Classed("batch", TenantClass::kBatch),
      Classed("unset", TenantClass::kUnset),
      Classed("no slo", TenantClass::kLatency),
      Classed("short", TenantClass::kLatency, 5 * kMillisecond),
      Classed("near", TenantClass::kLatency, 19 * kMillisecond),
      Classed("long", TenantClass::kLatency, 20 * kMillisecond),
      Classed("longer", TenantClass::kLatency, kSecond),
  });
  std::vector<int> ranks;
  for (const Grant& grant : decision.grants) ranks.push_back(grant.rank);
  CHECK(ranks == std::vector<int>{6, 5, 0, 0, 0, 1, 2});
}

TEST_CASE("Policy priority gives batch the device while the others have long been idle") {
  const std::vector<Tenant> tenants = {Classed("latency", TenantClass::kLatency),
                                       Classed("batch", TenantClass::kBatch)};
  std::vector<SmRange> partitions = {SmRange{}};
  for (const SmRange& range : StandardPartitions({132, 8})) partitions.push_back(range);
  std::vector<CoroutineView> views(2);
  Snapshot snapshot;
  snapshot.device = {132, 8};
  snapshot.partitions = partitions;
  snapshot.tenants = tenants;
  views[0].tenant = &tenants[0];
  views[0].changed_at = 5 * kSecond;
  views[1].tenant = &tenants[1];
  views[1].has_work = true;
  snapshot.coroutines = views;
  const auto policy = *CreatePolicy("priority", {{{"absent_after", "2s"}}});
  snapshot.now = 6 * kSecond;
  Decision decision = policy->Decide(snapshot);
  CHECK(decision.grants[1].idle.long_partition != 0);
  CHECK(decision.ask_again_at == 7 * kSecond);
  snapshot.now = 7 * kSecond;
  decision = policy->Decide(snapshot);
  CHECK(decision.grants[1].idle.long_partition == 0);
  CHECK(decision.grants[1].idle.window == kForever);
  CHECK(decision.ask_again_at == kForever);
  views[0].has_work = true;
  snapshot.coroutines = views;
  CHECK(policy->Decide(snapshot).grants[1].contended.window == 0);
}

TEST_CASE("Policy priority limits batch only beside a program of a lower rank") {
  const Decision alone =
      Decide({Classed("a", TenantClass::kBatch), Classed("b", TenantClass::kBatch)});
  for (const Grant& grant : alone.grants) {
    CHECK(grant.idle.window == kForever);
    CHECK(grant.idle.partition == 0);
    CHECK(grant.idle.long_partition == 0);
  }
  const Decision beside =
      Decide({Classed("a", TenantClass::kLatency), Classed("b", TenantClass::kBatch)});
  CHECK(beside.grants[0].idle.window == kForever);
  CHECK(beside.grants[0].contended.window == kForever);
  CHECK(beside.grants[1].idle.window == 30 * kMicrosecond);
  CHECK(beside.grants[1].contended.window == 0);
  CHECK(beside.grants[1].idle.partition == 0);
  CHECK(beside.grants[1].idle.long_partition != 0);
  CHECK_FALSE(beside.grants[1].prepare.empty());
}

TEST_CASE("Policy priority lets batch go on in the last part of a request") {
  const std::vector<Tenant> tenants = {Classed("a", TenantClass::kLatency),
                                       Classed("b", TenantClass::kBatch)};
  const Decision usual = Decide(tenants);
  CHECK(usual.grants[0].contention_phase == Approx(0.4));
  CHECK(usual.grants[1].contended.window == 0);
  CHECK(TailLimits(usual.grants[1]).window == 30 * kMicrosecond);
  CHECK(TailLimits(usual.grants[1]).partition != 0);
  CHECK(TailLimits(usual.grants[1]).long_partition == usual.grants[1].idle.long_partition);
  const Decision never = Decide(tenants, {}, {{{"tail", "0"}}});
  CHECK(never.grants[0].contention_phase == 1);
}

TEST_CASE("Policy priority sizes the window by how long operations are") {
  const auto window = [](Nanoseconds typical) {
    CoroutineView view;
    view.typical_operation = typical;
    return Decide({Classed("a", TenantClass::kLatency), Classed("b", TenantClass::kBatch)}, view)
        .grants[1]
        .idle.window;
  };
  CHECK(window(0) == 30 * kMicrosecond);
  CHECK(window(20 * kMicrosecond) == 60 * kMicrosecond);
  CHECK(window(kSecond) > 99 * kMicrosecond);
  CHECK(window(kForever) <= 100 * kMicrosecond);
}

// A training job whose step of 57 ms has 1,700 operations of 30 us and six of 1 ms.
std::vector<Nanoseconds> TrainingStep() {
  std::vector<Nanoseconds> operations;
  for (int i = 0; i < 1706; ++i)
    operations.push_back(i % 284 == 283 ? kMillisecond : 30 * kMicrosecond);
  return operations;
}

TEST_CASE("Policy priority keeps requests short beside a running training job") {
  constexpr Nanoseconds kAlone = 1310 * kMicrosecond;
  const auto run = [&](const char* policy) {
    auto device = std::make_unique<VirtualDevice>(DeviceShape{132, 8}, *CreatePolicy(policy, {}));
    device->Open(Classed("inference", TenantClass::kLatency),
                 Arrivals(5 * kMillisecond, {kAlone}, 1));
    device->Open(Classed("training", TenantClass::kBatch), Steady(TrainingStep()));
    device->Run(20 * kSecond);
    return device;
  };
  const auto device = run("priority");
  const auto times = [&](const VirtualDevice& of, double quantile) {
    return static_cast<double>(Quantile(of[0].latencies, quantile)) / kAlone;
  };
  CHECK(times(*device, 0.5) < 1.1);
  // A tenth of the training's time is in operations of 1 ms, which cannot be stopped. On half of
  // the SMs such an operation takes 2 ms. A request does two thirds of its work in that time.
  CHECK(times(*device, 0.99) < 1.8);
  CHECK(static_cast<double>((*device)[1].device_time) / (20 * kSecond) > 0.65);
  CHECK(times(*run("whole"), 0.5) > 5);
}

TEST_CASE("Policy priority starves no coroutine: one operation goes through in every throttle") {
  VirtualDevice device({132, 8}, *CreatePolicy("priority", {{{"max_throttle", "5ms"}}}));
  device.Open(Classed("greedy", TenantClass::kLatency), Steady({kMillisecond}));
  // It never pauses: each burst follows the one before at once.
  device.Open(Classed("greedy too", TenantClass::kLatency), Steady({700 * kMicrosecond}));
  const size_t batch = device.Open(Classed("batch", TenantClass::kBatch),
                                   Steady(std::vector<Nanoseconds>(10, 50 * kMicrosecond)));
  device.Run(2 * kSecond);
  CHECK(device[batch].longest_throttle <= 5 * kMillisecond + kMicrosecond);
  CHECK(device[batch].begun.size() > 150);
}

TEST_CASE("Policy priority puts long operations where they leave SMs free") {
  VirtualDevice device({132, 8}, *CreatePolicy("priority", {}));
  device.Open(Classed("inference", TenantClass::kLatency),
              Periodic(kMillisecond, 5 * kMillisecond, {kMillisecond}));
  const size_t training = device.Open(Classed("training", TenantClass::kBatch),
                                      Steady({50 * kMicrosecond, kMillisecond}));
  device.Run(kSecond);
  for (const auto& [work, range] : device[training].begun) {
    if (work == kMillisecond) CHECK((!range.whole() && range.count < 80));
  }
}

TEST_CASE("Policy priority makes latency tenants urgent, and no others") {
  const Decision decision = Decide(
      {Classed("latency", TenantClass::kLatency), Classed("slower", TenantClass::kLatency, kSecond),
       Classed("unset", TenantClass::kUnset), Classed("batch", TenantClass::kBatch)});
  CHECK(decision.grants[0].urgent);
  CHECK(decision.grants[1].urgent);
  CHECK_FALSE(decision.grants[2].urgent);
  CHECK_FALSE(decision.grants[3].urgent);
}

TEST_CASE("Policy priority bounds a latency tenant only beside one with a shorter SLO") {
  const Decision decision = Decide({Classed("short", TenantClass::kLatency, 5 * kMillisecond),
                                    Classed("long", TenantClass::kLatency, kSecond)},
                                   {}, {{{"min_window", "20us"}, {"max_throttle", "7ms"}}});
  CHECK(decision.grants[0].contended.window == kForever);
  CHECK(decision.grants[1].contended.window == 0);
  CHECK(decision.grants[0].idle.window == kForever);
  CHECK(decision.grants[1].idle.window == 100 * kMicrosecond);
  for (const Grant& grant : decision.grants) {
    CHECK(grant.idle.max_throttle == 7 * kMillisecond);
    CHECK(grant.contended.max_throttle == 7 * kMillisecond);
  }
}

TEST_CASE("A latency tenant beside one with a shorter SLO keeps three operations in flight") {
  const auto window = [](Nanoseconds typical, Nanoseconds longest) {
    CoroutineView view;
    view.typical_operation = typical;
    view.longest_operation = longest;
    return Decide({Classed("short", TenantClass::kLatency, 5 * kMillisecond),
                   Classed("long", TenantClass::kLatency, kSecond)},
                  view)
        .grants[1]
        .idle.window;
  };
  CHECK(window(0, 0) == 100 * kMicrosecond);
  CHECK(window(10 * kMicrosecond, 20 * kMicrosecond) == 100 * kMicrosecond);
  CHECK(window(200 * kMicrosecond, 200 * kMicrosecond) == 600 * kMicrosecond);
  CHECK(window(10 * kMicrosecond, 2 * kMillisecond) == 2030 * kMicrosecond);
  CHECK(window(kForever, kForever) == kForever);
  CHECK(window(-1, -1) == 100 * kMicrosecond);
}

TEST_CASE("Policy priority ranks no latency tenant behind tenants without a class") {
  std::vector<Tenant> tenants = {Classed("unset", TenantClass::kUnset)};
  for (const Nanoseconds slo : {1, 4, 16, 64, 256, 1024, 4096}) {
    tenants.push_back(
        Classed("slo" + std::to_string(slo), TenantClass::kLatency, slo * kMillisecond));
  }
  const Decision decision = Decide(tenants);
  std::vector<int> ranks;
  for (const Grant& grant : decision.grants) ranks.push_back(grant.rank);
  CHECK(ranks == std::vector<int>{5, 0, 1, 2, 3, 4, 4, 4});
}

TEST_CASE("Policy priority keeps a latency tenant within its bounds of SMs") {
  Tenant bounded = Classed("bounded", TenantClass::kLatency);
  bounded.max_sms = 66;
  const Decision decision = Decide({bounded});
  const std::vector<SmRange> pool = StandardPartitions({132, 8});
  for (const Limits& limits : {decision.grants[0].idle, decision.grants[0].contended}) {
    REQUIRE(limits.partition > 0);
    CHECK(pool[limits.partition - 1].count == 64);
    CHECK(limits.long_partition == limits.partition);
  }
}

// ---- devices that preempt

TEST_CASE("Policy priority limits no best-effort work beside urgent work that stops it") {
  const std::vector<Tenant> tenants = {Classed("latency", TenantClass::kLatency),
                                       Classed("unset", TenantClass::kUnset)};
  const Decision decision = DecideOn(tenants, Preempting(2));
  CHECK(decision.grants[0].urgent);
  const Grant& best_effort = decision.grants[1];
  CHECK_FALSE(best_effort.urgent);
  CHECK(best_effort.rank > decision.grants[0].rank);
  for (const Limits& limits : {best_effort.idle, best_effort.contended, TailLimits(best_effort)}) {
    CHECK(limits.window == kForever);
    CHECK(limits.partition == 0);
    CHECK(limits.long_partition == 0);
    CHECK(limits.long_operation == kForever);
  }
  CHECK(best_effort.prepare.empty());
}

TEST_CASE("Policy priority limits best-effort work beside a program that cannot preempt") {
  const std::vector<Tenant> tenants = {Classed("bound", TenantClass::kLatency),
                                       Classed("latency", TenantClass::kLatency),
                                       Classed("batch", TenantClass::kBatch)};
  std::vector<CoroutineView> views = Preempting(3);
  views[0].preempts = false;
  CHECK(DecideOn(tenants, views).grants == Decide(tenants).grants);
  // Best-effort work that is bound there is stopped as any other.
  views[0].preempts = true;
  views[2].preempts = false;
  CHECK(DecideOn(tenants, views).grants[2].contended.window == kForever);
}

TEST_CASE("Policy priority limits best-effort work that cannot be stopped") {
  const std::vector<Tenant> tenants = {Classed("latency", TenantClass::kLatency),
                                       Classed("batch", TenantClass::kBatch)};
  std::vector<CoroutineView> views = Preempting(2);
  views[1].always_preempts = true;
  CHECK(DecideOn(tenants, views).grants == Decide(tenants).grants);
}

TEST_CASE("Policy priority keeps the order of latency tenants that preempt") {
  const std::vector<Tenant> tenants = {Classed("short", TenantClass::kLatency, 5 * kMillisecond),
                                       Classed("long", TenantClass::kLatency, kSecond)};
  const Decision decision = DecideOn(tenants, Preempting(2));
  CHECK(decision.grants[0].rank < decision.grants[1].rank);
  CHECK(decision.grants == Decide(tenants).grants);
  CHECK(decision.grants[1].contended.window == 0);
  // A latency tenant that is bound to ordinary work is stopped by the other.
  std::vector<CoroutineView> views = Preempting(2);
  views[1].preempts = false;
  CHECK(DecideOn(tenants, views).grants[1].contended.window == kForever);
  // But it waits for no tenant that is bound there as well.
  views[0].preempts = false;
  CHECK(DecideOn(tenants, views).grants[1].contended.window == 0);
}

TEST_CASE("A latency tenant goes on beside a long burst of one with a shorter SLO") {
  const std::vector<Tenant> tenants = {Classed("short", TenantClass::kLatency, 5 * kMillisecond),
                                       Classed("long", TenantClass::kLatency, kSecond)};
  std::vector<CoroutineView> views = Preempting(2);
  views[0].has_work = views[1].has_work = true;
  views[0].changed_at = -kLongBurst + 1;  // the snapshot's time is 0
  const Decision before = DecideOn(tenants, views);
  CHECK(before.grants[1].contended.window == 0);
  CHECK(before.ask_again_at == 1);
  --views[0].changed_at;
  CHECK(DecideOn(tenants, views).grants[1].contended.window == 30 * kMicrosecond);
}

TEST_CASE("Policy priority orders latency tenants of several engines by their SLOs") {
  const std::vector<Tenant> tenants = {Classed("long", TenantClass::kLatency, kSecond)};
  const Tenant other = Classed("", TenantClass::kLatency, 5 * kMillisecond);
  std::vector<CoroutineView> views = Preempting(1);
  views[0].tenant = &tenants[0];
  std::vector<OtherEngineView> others(1);
  others[0].coroutine = Preempting(1)[0];
  others[0].coroutine.tenant = &other;
  others[0].urgent = true;
  Snapshot snapshot;
  snapshot.device = {132, 8};
  const std::vector<SmRange> partitions = {SmRange{}};
  snapshot.partitions = partitions;
  snapshot.tenants = tenants;
  snapshot.coroutines = views;
  const auto policy = *CreatePolicy("priority", {});
  CHECK(policy->Decide(snapshot).grants[0].rank == 0);
  snapshot.other_engines = others;
  const Grant grant = policy->Decide(snapshot).grants[0];
  CHECK(grant.rank == 1);
  CHECK(grant.contended.window == 0);
  others[0].coroutine.has_work = true;
  others[0].coroutine.changed_at = -kLongBurst;
  CHECK(policy->Decide(snapshot).grants[0].contended.window == 30 * kMicrosecond);
}

TEST_CASE("Policy priority lets tenants without a class go before batch on devices that preempt") {
  const Decision decision =
      DecideOn({Classed("latency", TenantClass::kLatency), Classed("unset", TenantClass::kUnset),
                Classed("batch", TenantClass::kBatch)},
               Preempting(3));
  CHECK(decision.grants[1].contended.window == kForever);
  CHECK(decision.grants[2].contended.window == 0);
  CHECK(decision.grants[2].idle.long_partition != 0);
}

// A request of 1 ms in every 5 ms, beside kernels of 10 ms.
std::unique_ptr<VirtualDevice> RequestsBesideLongKernels(
    const DeviceShape& shape, const std::function<void(VirtualDevice&)>& bind = {}) {
  auto device = std::make_unique<VirtualDevice>(shape, *CreatePolicy("priority", {}));
  device->Open(Classed("inference", TenantClass::kLatency),
               Periodic(kMillisecond, 5 * kMillisecond, {kMillisecond}));
  device->Open(Classed("training", TenantClass::kBatch), Steady({10 * kMillisecond}));
  if (bind) bind(*device);
  device->Run(2 * kSecond);
  return device;
}

TEST_CASE("On a device that preempts, requests are short and best-effort work has all SMs") {
  const auto device = RequestsBesideLongKernels(kPreemptingH200);
  CHECK(Quantile((*device)[0].latencies, 1) <= kMillisecond + kPreemptingH200.preemption);
  CHECK((*device)[0].latencies.size() == 400);
  for (const auto& [work, range] : (*device)[1].begun) CHECK(range.whole());
  // The device is never idle. A turn of urgent work costs at most 0.25 ms.
  CHECK((*device)[1].device_time > 2 * kSecond * 73 / 100);
  CHECK((*device)[1].longest_throttle == 0);
}

TEST_CASE("A program that is bound to ordinary work is served as on a device without preemption") {
  const auto without = RequestsBesideLongKernels(kH200);
  const auto bound = RequestsBesideLongKernels(
      kPreemptingH200, [](VirtualDevice& device) { device.BindToOrdinary(0); });
  CHECK((*bound)[0].latencies == (*without)[0].latencies);
  CHECK((*bound)[1].begun == (*without)[1].begun);
  CHECK((*bound)[1].device_time == (*without)[1].device_time);
  for (const auto& [work, range] : (*bound)[1].begun) CHECK_FALSE(range.whole());
}

TEST_CASE("Best-effort work that is bound to urgent work waits while requests run") {
  const auto device = RequestsBesideLongKernels(
      kPreemptingH200, [](VirtualDevice& device) { device.BindToUrgent(1); });
  CHECK((*device)[1].longest_throttle > 0);
}

TEST_CASE("On a device that preempts, a shorter SLO goes first among latency tenants") {
  VirtualDevice device(kPreemptingH200, *CreatePolicy("priority", {}));
  const size_t fast = device.Open(Classed("fast", TenantClass::kLatency, 5 * kMillisecond),
                                  Periodic(kMillisecond, 7 * kMillisecond, {kMillisecond}));
  const size_t slow =
      device.Open(Classed("slow", TenantClass::kLatency, kSecond), Steady({50 * kMicrosecond}));
  const size_t batch =
      device.Open(Classed("batch", TenantClass::kBatch), Steady({10 * kMillisecond}));
  device.Run(2 * kSecond);
  // At most one operation of the other tenant is before a request.
  CHECK(Quantile(device[fast].latencies, 1) <= 1050 * kMicrosecond);
  CHECK(device[slow].device_time > kSecond);
  // Urgent work never ends.
  CHECK(device[batch].device_time == 0);
}

}  // namespace
}  // namespace detshare::policy
