#include <catch2/catch.hpp>
#include <memory>

#include "policy/best_effort_limits.h"
#include "policy/priority/priority.h"
#include "tests/policy/device_shapes.h"
#include "tests/policy/virtual_device.h"

namespace detshare::policy {
namespace {

struct TwoPrograms {
  Tenant urgent_tenant, batch_tenant;
  std::vector<CoroutineView> views{2};
  Snapshot snapshot;
  Grant grant;
  Nanoseconds ask_again_at = kForever;

  TwoPrograms() {
    snapshot.device = kPreemptingH200;
    views[0].tenant = &urgent_tenant;
    views[1].tenant = &batch_tenant;
    for (CoroutineView& view : views) view.has_work = view.preempts = true;
  }
  // A burst that begins then pauses as soon as it is long.
  static constexpr Nanoseconds kBegin = 1000 * (kLongBurst + kBurstPause);

  // The window of the urgent program when its burst has lasted for this time.
  Nanoseconds WindowAfter(Nanoseconds lasted) {
    snapshot.now = kBegin + lasted;
    views[0].changed_at = kBegin;
    snapshot.coroutines = views;
    grant = {};
    ask_again_at = kForever;
    PauseLongBursts(snapshot, {{0, true}, {5, false}}, 0, &grant, &ask_again_at);
    CHECK(grant.contended.window == grant.idle.window);
    return grant.idle.window;
  }
};

TEST_CASE_METHOD(TwoPrograms, "A long urgent burst pauses again and again while it stops others") {
  CHECK(WindowAfter(0) == kLongBurstWindow);
  CHECK(ask_again_at == snapshot.now + kLongBurst);
  CHECK(WindowAfter(kLongBurst - 1) == kLongBurstWindow);
  CHECK(WindowAfter(kLongBurst) == 0);
  CHECK(ask_again_at == snapshot.now + kBurstPause);
  CHECK(WindowAfter(kLongBurst + kBurstPause) == kLongBurstWindow);
  CHECK(WindowAfter(2 * kLongBurst + kBurstPause) == 0);
}

TEST_CASE_METHOD(TwoPrograms, "Long urgent bursts pause at the same time, whenever they began") {
  constexpr Nanoseconds kCycle = kLongBurst + kBurstPause;
  for (Nanoseconds at = 0; at < kCycle; at += kMillisecond) {
    views[0].changed_at = 8 * kSecond + at * 7;
    snapshot.now = 100 * kCycle + 10 * kSecond / kCycle * kCycle + at;
    snapshot.coroutines = views;
    grant = {};
    PauseLongBursts(snapshot, {{0, true}, {5, false}}, 0, &grant, &ask_again_at);
    CHECK((grant.idle.window == 0) == (at >= kLongBurst));
  }
}

TEST_CASE_METHOD(TwoPrograms, "An urgent burst does not pause where it stops nobody's work") {
  views[1].has_work = false;
  CHECK(WindowAfter(kLongBurst) == kForever);
  CHECK(ask_again_at == kForever);
  views[1].has_work = true;
  views[0].preempts = false;
  CHECK(WindowAfter(kLongBurst) == kForever);
}

TEST_CASE_METHOD(TwoPrograms,
                 "A long urgent burst pauses also while it stops another engine's work") {
  views[1].has_work = false;
  std::vector<OtherEngineView> others(1);
  others[0].coroutine = views[1];
  others[0].coroutine.has_work = true;
  snapshot.other_engines = others;
  CHECK(WindowAfter(0) == kLongBurstWindow);
  CHECK(WindowAfter(kLongBurst) == 0);
  // Urgent work there is not stopped.
  others[0].urgent = true;
  CHECK(WindowAfter(kLongBurst) == kForever);
  others[0].urgent = others[0].coroutine.has_work = false;
  CHECK(WindowAfter(kLongBurst) == kForever);
}

TEST_CASE_METHOD(TwoPrograms, "A burst that pauses pauses in the tail of other requests, too") {
  for (const Nanoseconds lasted : {Nanoseconds{0}, kLongBurst}) {
    snapshot.now = 7 * kSecond + lasted;
    views[0].changed_at = 7 * kSecond;
    snapshot.coroutines = views;
    grant.tail = Limits{};
    PauseLongBursts(snapshot, {{0, true}, {5, false}}, 0, &grant, &ask_again_at);
    CHECK(TailLimits(grant).window == grant.idle.window);
  }
}

TEST_CASE("Best-effort work progresses beside urgent work that never ends") {
  VirtualDevice device(kPreemptingH200, *CreatePriority({}));
  const Program endless = [](Nanoseconds) {
    return Burst{0, std::vector<Nanoseconds>(100'000, kMillisecond)};
  };
  Tenant urgent, batch;
  urgent.name = "urgent";
  urgent.tenant_class = TenantClass::kLatency;
  batch.name = "batch";
  batch.tenant_class = TenantClass::kBatch;
  const size_t first = device.Open(urgent, endless);
  const size_t second = device.Open(batch, endless);
  device.Run(10 * kSecond);
  // The urgent work has a window of 20 ms in flight when a pause of 30 ms begins.
  CHECK(device[second].device_time > 400 * kMillisecond);
  CHECK(device[first].device_time > 8 * kSecond);
}

}  // namespace
}  // namespace detshare::policy
