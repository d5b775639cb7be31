#include "coroutine_runtime/queue_pool.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

struct LimitedPool {
  FakeDevice device;
  QueuePool pool{device, /*limit=*/2};

  std::unique_ptr<Queue> Acquire(int priority) {
    absl::StatusOr<std::unique_ptr<Queue>> queue = pool.Acquire(device.whole(), priority);
    return queue.ok() ? *std::move(queue) : nullptr;
  }
  void Release(int priority, std::unique_ptr<Queue> queue) {
    pool.Release(device.whole(), priority, std::move(queue));
  }
};

TEST_CASE_METHOD(LimitedPool, "A queue that was given back is used again") {
  std::unique_ptr<Queue> queue = Acquire(0);
  Queue* const first = queue.get();
  Release(0, std::move(queue));
  CHECK(Acquire(0).get() == first);
}

TEST_CASE_METHOD(LimitedPool, "No more queues are in use than the limit says") {
  const std::unique_ptr<Queue> first = Acquire(0);
  std::unique_ptr<Queue> second = Acquire(-1);
  CHECK(Acquire(0) == nullptr);
  pool.Discard(std::move(second));
  CHECK(Acquire(0) != nullptr);
}

TEST_CASE_METHOD(LimitedPool, "At the limit, an idle queue of another use makes room") {
  Release(0, Acquire(0));
  Release(-1, Acquire(-1));
  CHECK(device.queues.size() == 2);
  std::unique_ptr<Queue> first = Acquire(-2);
  const std::unique_ptr<Queue> second = Acquire(-2);
  CHECK(first != nullptr);
  CHECK(second != nullptr);
  CHECK(device.queues.size() == 2);
  CHECK(Acquire(-2) == nullptr);
  Release(-2, std::move(first));
  CHECK(Acquire(0) != nullptr);
}

TEST_CASE("Who holds queues gets another one only while more are free") {
  FakeDevice device;
  QueuePool pool(device, /*limit=*/8);
  std::vector<std::unique_ptr<Queue>> mine, theirs;
  const auto fill = [&](std::vector<std::unique_ptr<Queue>>* queues) {
    for (;;) {
      absl::StatusOr<std::unique_ptr<Queue>> queue =
          pool.Acquire(device.whole(), 0, static_cast<int>(queues->size()));
      if (!queue.ok()) return queues->size();
      queues->push_back(*std::move(queue));
    }
  };
  CHECK(fill(&mine) == 4);
  CHECK(fill(&theirs) == 2);
  CHECK(pool.Acquire(device.whole(), 0).ok());
  for (std::unique_ptr<Queue>& queue : mine) pool.Release(device.whole(), 0, std::move(queue));
  CHECK(fill(&theirs) > 2);
}

}  // namespace
}  // namespace detshare
