// A policy that does what the test says, and a session of a device under a scheduler.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "policy/policy.h"
#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {

class ScriptedPolicy final : public policy::Policy {
 public:
  bool Watches() const override { return watches; }
  bool TakesTurns(absl::Span<const policy::Tenant>) const override { return takes_turns; }
  policy::Nanoseconds EngineTurn() const override { return engine_turn; }
  std::vector<policy::SmRange> Partitions(const policy::DeviceShape&,
                                          absl::Span<const policy::Tenant>) const override {
    return ranges;
  }
  policy::Decision Decide(const policy::Snapshot& snapshot) override {
    ++asked;
    seen.assign(snapshot.coroutines.begin(), snapshot.coroutines.end());
    last_now = snapshot.now;
    policy::Decision decision;
    decision.grants.resize(snapshot.coroutines.size());
    if (decide) decide(snapshot, &decision);
    return decision;
  }

  bool watches = true;
  bool takes_turns = false;
  policy::Nanoseconds engine_turn = 0;
  std::vector<policy::SmRange> ranges;
  std::function<void(const policy::Snapshot&, policy::Decision*)> decide;
  int asked = 0;
  policy::Nanoseconds last_now = 0;
  std::vector<policy::CoroutineView> seen;
};

// Does with its coroutine what a session's worker does.
struct ScheduledSession {
  FakeDevice& device;
  DeviceScheduler& scheduler;
  const policy::CoroutineId id;
  std::unique_ptr<GpuCoroutine> coroutine;  // ends after the space
  std::unique_ptr<AddressSpace> space;
  Executor executor;
  Parking parking{executor, 0};  // the device sees all work at once
  FakeKernel kernel;

  ScheduledSession(FakeDevice& device, QueuePool& pool, DeviceScheduler& scheduler,
                   policy::CoroutineId id, const std::string& tenant = "t")
      : device(device),
        scheduler(scheduler),
        id(id),
        space(*device.CreateAddressSpace(id << 40, 1ull << 30)) {
    coroutine = *GpuCoroutine::Create(device, *space, pool, parking);
    for (StreamId stream = 1; stream <= 3; ++stream) {
      REQUIRE(coroutine->CreateStream(stream, 1, {.non_blocking = true}).ok());
    }
    // The kernel's duration is known well, so no launch is timed.
    kernel.set_code(1000);
    for (int i = 0; i < 4; ++i) Known()->Add(0, kDuration, false);
    scheduler.Add(id, tenant, *coroutine);
  }
  ~ScheduledSession() { scheduler.Remove(id, *coroutine); }

  // Launches and returns the first SM of the launch's partition. A launch without a shape takes
  // kDuration.
  static constexpr policy::Nanoseconds kDuration = 30 * policy::kMicrosecond;
  int Launch(StreamId stream = 1, const LaunchShape& shape = {}) {
    coroutine->MayRun();  // as for every record
    REQUIRE(coroutine->Launch(stream, kernel, shape, {}).ok());
    return device.operations.back().first_sm;
  }
  // The learned durations of the kernel's launches with this shape. The kernel's code has a name.
  OperationDurations* Known(const LaunchShape& shape = {}) {
    DurationCache cache(scheduler.durations());
    const uint64_t content = ContentOf({}, space->base(), space->size());
    return cache.Look({kernel.code(), ShapeOf(shape)}, {shape.grid.x, 0, content}, 0).operation;
  }
  // Makes one record. Returns false if the coroutine is throttled.
  bool TryLaunch(StreamId stream = 1) {
    if (!coroutine->MayRun() && !coroutine->Throttle()) return false;
    Launch(stream);
    return true;
  }
  // Makes as many records as are allowed, at most `max`.
  int LaunchAll(int max) {
    int launched = 0;
    while (launched < max && TryLaunch()) ++launched;
    return launched;
  }
  void Pause() { coroutine->WatchWork(/*pause=*/true); }
};

}  // namespace detshare
