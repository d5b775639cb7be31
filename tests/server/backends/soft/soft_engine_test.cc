#include "server/backends/soft/soft_engine.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "coroutine_runtime/status_cuda.h"
#include "tests/server/backends/soft/test_addresses.h"
#include "tests/server/test_windows.h"

namespace detshare::soft {
namespace {

// A task of `pieces` calls of `action`, which gets the number of the piece.
class TestJob final : public Job {
 public:
  TestJob(uint64_t pieces, std::function<void(uint64_t)> action, bool is_short = false,
          bool is_kernel = false)
      : pieces_(pieces), action_(std::move(action)), is_short_(is_short), is_kernel_(is_kernel) {}

  Claimed Claim(Chunk* chunk) override {
    if (next_ == pieces_) return in_flight_ == 0 ? Claimed::kFinished : Claimed::kNothing;
    chunk->begin = next_++;
    ++in_flight_;
    return Claimed::kChunk;
  }
  bool HasMore() const override { return next_ < pieces_; }
  void Perform(Chunk* chunk) override { action_(chunk->begin); }
  bool Finish(Chunk* chunk) override { return --in_flight_ == 0 && next_ == pieces_; }
  void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) override {
    timeline.EndNothing(entry);
  }
  bool IsShort() const override { return is_short_; }
  bool RunsOnSms() const override { return is_kernel_; }

 private:
  const uint64_t pieces_;
  const std::function<void(uint64_t)> action_;
  const bool is_short_, is_kernel_;
  uint64_t next_ = 0, in_flight_ = 0;
};

// A task that goes on until it is told to stop.
class EndlessJob final : public Job {
 public:
  explicit EndlessJob(const std::atomic<bool>& stop) : stop_(stop) {}
  Claimed Claim(Chunk*) override {
    if (busy_) return Claimed::kNothing;
    if (stop_) return Claimed::kFinished;
    busy_ = true;
    return Claimed::kChunk;
  }
  bool HasMore() const override { return false; }
  void Perform(Chunk*) override {}
  bool Finish(Chunk*) override {
    busy_ = false;
    return false;
  }
  void Conclude(Timeline& timeline, const Timeline::EntryPtr& entry) override {
    timeline.EndNothing(entry);
  }

 private:
  const std::atomic<bool>& stop_;
  bool busy_ = false;
};

class Fixture {
 public:
  explicit Fixture(int workers = 2, OrdinaryGroup* ordinary = nullptr)
      : engine(workers, timeline, ordinary) {
    auto made = SpaceState::Create(TestBase(0), kTestSpaceBytes, budget);
    REQUIRE(made.ok());
    space = *made;
  }

  Operation Make(std::shared_ptr<Job> job) {
    Operation operation;
    operation.kind = Operation::Kind::kJob;
    operation.space = space;
    operation.job = std::move(job);
    return operation;
  }
  void Run(const std::shared_ptr<QueueState>& queue, std::function<void()> action,
           bool is_short = false) {
    engine.Submit(queue, Make(std::make_shared<TestJob>(
                             1, [action](uint64_t) { action(); }, is_short)));
  }
  void WriteFence(const std::shared_ptr<QueueState>& queue, std::atomic<uint64_t>* fence,
                  uint64_t value) {
    Operation operation;
    operation.kind = Operation::Kind::kWriteFence;
    operation.space = space;
    operation.fence = fence;
    operation.value = value;
    engine.Submit(queue, std::move(operation));
  }
  void WaitFence(const std::shared_ptr<QueueState>& queue, const std::atomic<uint64_t>* fence,
                 uint64_t value) {
    Operation operation;
    operation.kind = Operation::Kind::kWaitFence;
    operation.space = space;
    operation.awaited = fence;
    operation.value = value;
    engine.Submit(queue, std::move(operation));
  }
  std::shared_ptr<Point> Record(const std::shared_ptr<QueueState>& queue) {
    Operation operation;
    operation.kind = Operation::Kind::kRecord;
    operation.point = std::make_shared<Point>();
    const std::shared_ptr<Point> point = operation.point;
    engine.Submit(queue, std::move(operation));
    return point;
  }
  void Wait(const std::shared_ptr<QueueState>& queue, std::shared_ptr<Point> point) {
    Operation operation;
    operation.kind = Operation::Kind::kWait;
    operation.point = std::move(point);
    engine.Submit(queue, std::move(operation));
  }
  void Finish(const std::shared_ptr<QueueState>& queue) {
    std::atomic<uint64_t> fence{0};
    WriteFence(queue, &fence, 1);
    while (fence.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    space->WaitIdle();
  }

  MemoryBudget budget{1 << 20};
  Timeline timeline{4};
  std::shared_ptr<SpaceState> space;
  Engine engine;
};

std::shared_ptr<QueueState> NewQueue() { return std::make_shared<QueueState>(); }

}  // namespace

TEST_CASE("a queue's work is done in order, and every piece once") {
  Fixture f;
  const auto queue = NewQueue();
  std::vector<int> order;  // needs no lock: tasks of one queue do not run at the same time
  std::atomic<int> pieces{0};
  for (int i = 0; i < 200; ++i) {
    f.Run(
        queue, [&order, i] { order.push_back(i); }, i % 3 == 0);
    f.engine.Submit(queue, f.Make(std::make_shared<TestJob>(5, [&](uint64_t) { ++pieces; })));
  }
  f.Finish(queue);
  REQUIRE(order.size() == 200);
  CHECK(std::is_sorted(order.begin(), order.end()));
  CHECK(pieces == 1000);
}

TEST_CASE(
    "ordinary kernels stand still while another process has the card, and nothing else does") {
  TestDirectory directory;
  CardProcesses own, others;
  REQUIRE(own.Join(directory.path + "/card").ok());
  REQUIRE(others.Join(directory.path + "/card").ok());
  OrdinaryGroup group(own), other(others);
  Fixture f(2, &group);
  const auto ordinary = NewQueue(), copies = NewQueue();
  const auto urgent = std::make_shared<QueueState>(/*urgent=*/true);
  std::atomic<int> kernels{0};
  const auto launch = [&](const std::shared_ptr<QueueState>& queue) {
    f.engine.Submit(queue, f.Make(std::make_shared<TestJob>(
                               5, [&](uint64_t) { ++kernels; }, false, /*is_kernel=*/true)));
  };
  other.SetWorks(true);
  launch(ordinary);
  bool copied = false;
  f.Run(copies, [&] { copied = true; });
  std::atomic<uint64_t> copy_fence{0}, urgent_fence{0};
  f.WriteFence(copies, &copy_fence, 1);
  while (copy_fence == 0) std::this_thread::yield();
  CHECK(copied);
  CHECK(kernels == 0);
  launch(urgent);
  f.WriteFence(urgent, &urgent_fence, 1);
  while (urgent_fence == 0) std::this_thread::yield();
  CHECK(kernels == 5);
  // The other process sees that this one has kernels.
  CHECK_FALSE(other.Progresses());
  SECTION("until the other process has no work") { other.SetWorks(false); }
  SECTION("until this process keeps the card") { group.Keep(true); }
  f.Finish(ordinary);
  CHECK(kernels == 10);
  CHECK(other.Progresses());
}

TEST_CASE("a fence is written after all earlier work, whose effects its reader sees") {
  Fixture f;
  const auto queue = NewQueue();
  for (uint64_t round = 1; round <= 300; ++round) {
    int plain = 0;
    std::atomic<uint64_t> fence{0};
    f.Run(queue, [&] { plain = 42; });
    f.WriteFence(queue, &fence, round);
    while (fence.load(std::memory_order_acquire) != round) std::this_thread::yield();
    REQUIRE(plain == 42);
  }
  f.space->WaitIdle();
}

TEST_CASE("short work on an idle queue is done before the call returns") {
  Fixture f;
  const auto queue = NewQueue();
  std::thread::id who;
  f.Run(
      queue, [&] { who = std::this_thread::get_id(); }, true);
  CHECK(who == std::this_thread::get_id());
  std::atomic<uint64_t> fence{0};
  f.WriteFence(queue, &fence, 1);
  CHECK(fence == 1);
}

TEST_CASE("a queue waits for a point of another queue") {
  Fixture f;
  const auto first = NewQueue(), second = NewQueue(), third = NewQueue();
  std::atomic<uint64_t> gate{0};
  std::atomic<bool> early{false};
  bool done = false;
  f.WaitFence(first, &gate, 1);
  f.Run(first, [&] { done = true; });
  const auto point = f.Record(first);
  f.Wait(second, point);
  f.Run(second, [&] { early = early || !done; });
  f.Wait(third, point);
  f.Run(third, [&] { early = early || !done; });
  CHECK_FALSE(f.engine.Reached(*point));
  gate = 1;
  f.Finish(second);
  f.Finish(third);
  CHECK(f.engine.Reached(*point));
  CHECK_FALSE(early);
}

TEST_CASE("a queue that waits for the host does not delay other queues") {
  Fixture f(1);
  const auto held = NewQueue(), free = NewQueue();
  std::atomic<uint64_t> gate{4};
  bool ran = false;
  f.WaitFence(held, &gate, 5);
  f.Run(held, [&] { ran = true; });
  f.Run(free, [] {});
  std::atomic<uint64_t> fence{0};
  f.WriteFence(free, &fence, 1);
  while (fence.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  gate.store(7, std::memory_order_release);
  f.Finish(held);
  CHECK(ran);
}

TEST_CASE("work that never ends does not starve other work") {
  Fixture f(1);
  const auto endless = NewQueue(), queue = NewQueue();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> ended{0};
  f.engine.Submit(endless, f.Make(std::make_shared<EndlessJob>(stop)));
  f.WriteFence(endless, &ended, 1);
  for (int i = 0; i < 100; ++i) f.Run(queue, [] {});
  std::atomic<uint64_t> fence{0};
  f.WriteFence(queue, &fence, 1);
  while (fence.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  CHECK(ended == 0);
  // Meanwhile the engine also polls fences that the host writes.
  std::atomic<uint64_t> gate{0};
  const auto waiting = NewQueue();
  f.WaitFence(waiting, &gate, 1);
  gate = 1;
  fence = 0;
  f.WriteFence(waiting, &fence, 1);
  while (fence.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  stop = true;
  f.Finish(endless);
}

TEST_CASE("after a fault work is skipped, fences are not written, and points are reached") {
  Fixture f;
  const auto queue = NewQueue();
  f.space->SetFault(kCudaErrorIllegalAddress, "as a test");
  bool ran = false;
  f.Run(queue, [&] { ran = true; });
  f.Run(
      queue, [&] { ran = true; }, true);
  const auto point = f.Record(queue);
  std::atomic<uint64_t> fence{0};
  f.WriteFence(queue, &fence, 1);
  f.space->WaitIdle();
  CHECK_FALSE(ran);
  CHECK(fence == 0);
  CHECK(f.engine.Reached(*point));
}

TEST_CASE("an abandoned space does not wait for the host") {
  Fixture f;
  const auto queue = NewQueue();
  std::atomic<uint64_t> never{0};
  f.WaitFence(queue, &never, 1);
  bool ran = false;
  f.Run(queue, [&] { ran = true; });
  f.space->Abandon();
  f.engine.Wake();
  f.space->WaitIdle();
  CHECK_FALSE(ran);
}

TEST_CASE("an engine can be destroyed while work is queued") {
  std::atomic<uint64_t> never{0};
  std::atomic<bool> stop{false};
  Fixture f;
  const auto first = NewQueue(), second = NewQueue();
  f.WaitFence(first, &never, 1);
  f.Run(first, [] {});
  f.engine.Submit(second, f.Make(std::make_shared<EndlessJob>(stop)));
}

TEST_CASE("many threads with many queues and points between them come to an end") {
  Fixture f;
  constexpr int kThreads = 4, kRounds = 300;
  std::mutex mutex;
  std::shared_ptr<Point> last;
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto queue = NewQueue();
      for (int i = 0; i < kRounds; ++i) {
        f.Run(
            queue, [&] { ++count; }, (i + t) % 2 == 0);
        const auto point = f.Record(queue);
        std::shared_ptr<Point> other;
        {
          const std::lock_guard lock(mutex);
          other = std::exchange(last, point);
        }
        if (other != nullptr) f.Wait(queue, other);
      }
      std::atomic<uint64_t> fence{0};
      f.WriteFence(queue, &fence, 1);
      while (fence.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  f.space->WaitIdle();
  CHECK(count == kThreads * kRounds);
}

}  // namespace detshare::soft
