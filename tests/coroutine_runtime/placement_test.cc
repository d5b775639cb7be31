#include "coroutine_runtime/placement.h"

#include <catch2/catch.hpp>

#include "policy/registry.h"
#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

// Puts the newest session on the first half of the device and everybody else on the second.
class NewestFirst final : public policy::Policy {
 public:
  std::vector<policy::SmRange> Partitions(const policy::DeviceShape& device,
                                          absl::Span<const policy::Tenant>) const override {
    return {{0, device.sm_count / 2}, {device.sm_count / 2, device.sm_count / 2}};
  }
  policy::Decision Decide(const policy::Snapshot& snapshot) override {
    times.push_back(snapshot.now);
    policy::Decision decision;
    decision.grants.resize(snapshot.coroutines.size());
    for (policy::Grant& grant : decision.grants) grant.quiet.partition = 2;
    if (!decision.grants.empty()) decision.grants.back().quiet.partition = 1;
    return decision;
  }
  std::vector<int64_t> times;
};

struct Session {
  std::unique_ptr<GpuCoroutine> coroutine;  // ends after the space
  std::unique_ptr<AddressSpace> space;
  Executor executor;
  FakeKernel kernel;

  Session(FakeDevice& device, QueuePool& pool)
      : space(*device.CreateAddressSpace(1ull << 40, 1ull << 30)) {
    coroutine = *GpuCoroutine::Create(device, *space, pool, executor);
    REQUIRE(coroutine->CreateStream(1, 1, {}).ok());
  }
  // Where the next launch runs.
  int FirstSm(FakeDevice& device) {
    REQUIRE(coroutine->Launch(1, kernel, {}, {}).ok());
    return device.operations.back().first_sm;
  }
};

TEST_CASE("A new session is bound at once, and those whom it moves when their executor polls") {
  FakeDevice device;
  ManualClock clock;
  auto owned = std::make_unique<NewestFirst>();
  NewestFirst& policy = *owned;
  auto placement = *Placement::Create(device, std::move(owned), {}, clock);
  QueuePool pool(device);
  Session one(device, pool), two(device, pool);

  clock.Advance(5);
  placement->Add(1, "a", *one.coroutine);
  CHECK(one.FirstSm(device) == 0);
  clock.Advance(5);
  placement->Add(2, "b", *two.coroutine);
  CHECK(policy.times == std::vector<int64_t>{5, 10});
  CHECK(two.FirstSm(device) == 0);
  CHECK(one.FirstSm(device) == 0);  // not yet
  CHECK(one.executor.Poll() == 1);
  CHECK(one.FirstSm(device) == 8);
  CHECK(placement->PartitionOf(1) == "sm8-15");
  CHECK(placement->PartitionOf(2) == "sm0-7");

  placement->Remove(2);
  CHECK(placement->PartitionOf(2).empty());
  one.executor.Poll();
  CHECK(one.FirstSm(device) == 0);
  const auto views = placement->Partitions();
  REQUIRE(views.size() == 3);
  CHECK(views[0].name == "all");
  CHECK(views[0].sm_count == 16);
  CHECK(views[0].sessions == 0);
  CHECK(views[1].sessions == 1);
  CHECK(views[2].first_sm == 8);
}

TEST_CASE("Policy static is carried out on the partitions that it announced") {
  FakeDevice device;
  ManualClock clock;
  policy::Tenant a;
  a.name = "a";
  a.sm_percent = 50;
  auto placement = *Placement::Create(device, *policy::CreatePolicy("static", {}), {a}, clock);
  QueuePool pool(device);
  Session one(device, pool), two(device, pool);
  placement->Add(1, "other", *one.coroutine);
  placement->Add(2, "a", *two.coroutine);
  CHECK(one.FirstSm(device) == 8);
  CHECK(two.FirstSm(device) == 0);
  CHECK(one.executor.Poll() == 0);
}

}  // namespace
}  // namespace detshare
