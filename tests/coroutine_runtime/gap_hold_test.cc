#include "coroutine_runtime/gap_hold.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

constexpr Nanoseconds kLinger = 150 * policy::kMicrosecond;

class HoldingDevice final : public FakeDevice {
 public:
  struct Recorded final : GroupHold {
    explicit Recorded(HoldingDevice& device) : device(device) {}
    absl::Status HoldFor(int64_t nanoseconds) override {
      device.held_for = nanoseconds;
      return absl::OkStatus();
    }
    void End() override { device.held_for.reset(); }
    HoldingDevice& device;
  };

  HoldingDevice() {
    EnablePreemption(200 * policy::kMicrosecond);
    changeable().attributes = {{39, 2048}, {81, 233'472}, {82, 65'536}, {106, 32}, {111, 1024}};
  }
  absl::StatusOr<std::unique_ptr<GroupHold>> CreateHold() override {
    ++asked;
    if (no_holds) return absl::ResourceExhaustedError("all are in use");
    return std::make_unique<Recorded>(*this);
  }

  bool no_holds = false;
  int asked = 0;
  std::optional<int64_t> held_for;
};

struct UrgentSession {
  HoldingDevice device;
  FakeAddressSpace space{device, 1 << 30, 1 << 30};
  ManualClock clock;
  SchedBoard board;
  DurationTable durations{device.properties().sm_count};
  SchedEntity entity{board, durations, clock, [](SchedEntity::News) {}};
  bool ordinary_complete = true;
  Binding binding{device, space, [this](bool) { return ordinary_complete; }};
  GapHold hold{device, binding};
  FakeKernel kernel;

  UrgentSession() {
    clock.Advance(policy::kSecond);
    Publish(/*urgent=*/true);
    binding.Attach(entity);
    OthersWork(1);
  }
  void Publish(bool urgent, int rank = 0) {
    SchedEntity::Assignment assignment;
    assignment.followed = true;
    assignment.urgent = assignment.preempts = urgent;
    assignment.rank = rank;
    for (SchedEntity::BoundLimits* limits :
         {&assignment.idle, &assignment.contended, &assignment.tail}) {
      limits->partition = limits->long_partition = limits->yielding_partition = &device.whole();
    }
    entity.Publish(std::move(assignment));
    entity.Update();
  }
  void OthersWork(int more) { board.busy += static_cast<uint64_t>(more) * SchedBoard::One(5); }
  // As GpuCoroutine submits a kernel.
  void Launch(Nanoseconds estimate, LaunchShape shape = {}) {
    entity.Started(estimate, /*counts=*/true);
    binding.ForLaunch(kernel, shape, estimate);
    const bool wanted = hold.wanted();
    if (wanted) hold.BeforeKernel(kernel, shape);
    if (wanted) hold.HoldForWork();
  }
  void Request(int operations) {
    for (int i = 0; i < operations; ++i) Launch(1'000);
    Complete();
    clock.Advance(10 * policy::kMillisecond);
  }
  void Complete() {
    entity.Completed(entity.in_flight());
    entity.Idle();
    hold.Watch();
  }
};

// A kernel of one block of one thread, which leaves places on the SMs free.
TEST_CASE_METHOD(UrgentSession,
                 "A request of many operations holds the device until its work is done") {
  for (int i = 0; i < 7; ++i) Launch(1'000);
  CHECK_FALSE(device.held_for.has_value());
  Launch(1'000);
  CHECK(device.held_for == 8'000 + kLinger);
  Launch(5'000);
  CHECK(device.held_for == 13'000 + kLinger);
  Complete();
  CHECK(device.held_for == kLinger);
}

TEST_CASE_METHOD(UrgentSession,
                 "The first operation of a request holds if earlier requests had many") {
  Request(50);
  Request(50);
  device.held_for.reset();
  Launch(2'000);
  CHECK(device.held_for == 2'000 + kLinger);
}

TEST_CASE_METHOD(UrgentSession, "Requests of few operations hold nothing") {
  for (int i = 0; i < 20; ++i) Request(3);
  CHECK(device.asked == 0);
}

TEST_CASE_METHOD(UrgentSession, "A session holds nothing while no other has work") {
  OthersWork(-1);
  Request(50);
  CHECK(device.asked == 0);
  OthersWork(1);
  Launch(1'000);
  CHECK(device.held_for.has_value());
}

TEST_CASE_METHOD(UrgentSession, "A session in the ordinary group holds nothing") {
  Publish(/*urgent=*/false);
  Request(50);
  Request(50);
  CHECK(device.asked == 0);
}

TEST_CASE_METHOD(UrgentSession, "A session whose ordinary work is unfinished holds nothing") {
  Publish(/*urgent=*/false);
  Launch(1'000);
  ordinary_complete = false;
  Publish(/*urgent=*/true);
  Request(50);
  Request(50);
  CHECK(device.asked == 0);
  ordinary_complete = true;
  Launch(1'000);
  CHECK(device.held_for.has_value());
  // A graph that is not ready in the urgent group runs in the other one.
  ordinary_complete = false;
  binding.NoteGroup(device.whole());
  hold.EndForOthers();
  CHECK_FALSE(device.held_for.has_value());
  Launch(1'000);
  CHECK_FALSE(device.held_for.has_value());
}

TEST_CASE_METHOD(UrgentSession, "A session that makes room for a lower rank holds nothing") {
  Publish(/*urgent=*/true, /*rank=*/1);
  Request(50);
  Launch(1'000);
  REQUIRE(device.held_for.has_value());
  board.busy += SchedBoard::One(0);
  hold.Watch();
  CHECK_FALSE(device.held_for.has_value());
  CHECK_FALSE(hold.wanted());
  board.busy -= SchedBoard::One(0);
  CHECK(hold.wanted());
}

TEST_CASE_METHOD(UrgentSession, "A session that waits for ordinary work of another holds nothing") {
  Request(50);
  const std::shared_ptr<SharedEvent> event = *SharedEvent::Create(device);
  const std::unique_ptr<Queue> queue = *device.whole().CreateQueue(0);
  binding.Await(*event->Record(device, *queue, /*urgent=*/true));
  Launch(1'000);
  CHECK(device.held_for.has_value());
  const std::shared_ptr<SharedRecording> ordinary =
      *event->Record(device, *queue, /*urgent=*/false);
  binding.Await(ordinary);
  hold.Watch();
  CHECK_FALSE(device.held_for.has_value());
  Launch(1'000);
  CHECK_FALSE(device.held_for.has_value());
  ordinary->Reach();
  Launch(1'000);
  CHECK(device.held_for.has_value());
}

TEST_CASE_METHOD(UrgentSession, "A kernel that a hold would delay ends the hold before it") {
  Request(50);
  Launch(1'000);
  LaunchShape cooperative;
  cooperative.cooperative = true;
  hold.BeforeKernel(kernel, cooperative);
  CHECK_FALSE(device.held_for.has_value());
  Launch(1'000);
  CHECK(device.held_for.has_value());
  hold.BeforeGraph();
  CHECK_FALSE(device.held_for.has_value());
}

TEST_CASE_METHOD(UrgentSession, "Much work that a hold would delay is not held") {
  Request(50);
  LaunchShape cooperative;
  cooperative.cooperative = true;
  Launch(kLinger / 2, cooperative);
  CHECK(device.held_for.has_value());
  for (int i = 0; i < 2; ++i) {
    Launch(kLinger / 2, cooperative);
    CHECK(device.held_for.has_value() == (i == 0));
  }
  Launch(1'000);  // a hold would not delay it, but what is in flight
  hold.Watch();
  CHECK_FALSE(device.held_for.has_value());

  SECTION("until little is left of it") {
    entity.Completed(kLinger);
    hold.Watch();
    CHECK(device.held_for == entity.in_flight() + kLinger);
  }
  SECTION("until it is complete") {
    Complete();
    CHECK_FALSE(device.held_for.has_value());
    Launch(1'000);
    CHECK(device.held_for.has_value());
  }
}

TEST_CASE_METHOD(UrgentSession, "Unknown long work does not hold the device without an end") {
  Request(50);
  Launch(policy::kSecond);
  CHECK(device.held_for == 20 * policy::kMillisecond + kLinger);
}

TEST_CASE_METHOD(UrgentSession, "A session that gets no hold does not ask again") {
  device.no_holds = true;
  Request(50);
  Request(50);
  CHECK(device.asked == 1);
  CHECK_FALSE(hold.wanted());
}

TEST_CASE_METHOD(UrgentSession, "A session that never pauses gives the device away at times") {
  Request(50);
  int held = 0, not_held = 0;
  for (int i = 0; i < 100'000; ++i) {
    clock.Advance(10 * policy::kMicrosecond);
    Launch(1'000);
    entity.Completed(entity.in_flight());
    (device.held_for.has_value() ? held : not_held) += 1;
  }
  // 10 ms in 110 ms.
  CHECK(not_held > 8'000);
  CHECK(not_held < 10'000);
  CHECK(held > 80'000);
}

TEST_CASE_METHOD(UrgentSession, "A look at work that is not complete does not shorten the hold") {
  Request(50);
  Launch(5 * policy::kMillisecond);
  hold.Watch();
  CHECK(device.held_for == 5 * policy::kMillisecond + kLinger);
  Complete();
  CHECK(device.held_for == kLinger);
}

}  // namespace
}  // namespace detshare
