#include "server/backends/cuda/deferred_reclaimer.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

using Drains = DeferredReclaimer::Drains;

// Calls that a reclaimer made, each with its number.
struct Calls {
  std::vector<int> made;
  std::atomic<size_t> count{0};  // release: publishes `made`

  std::function<void()> operator()(int number) {
    return [this, number] {
      made.push_back(number);
      count.fetch_add(1, std::memory_order_release);
    };
  }
  void Await(size_t wanted) const {
    while (count.load(std::memory_order_acquire) < wanted) std::this_thread::yield();
  }
};

TEST_CASE_METHOD(StandInSession, "Calls are made in their order, in the background") {
  Calls calls;
  std::atomic<bool> elsewhere{false};
  reclaimer.Later(Drains::kBoth, [&, caller = std::this_thread::get_id()] {
    elsewhere = std::this_thread::get_id() != caller;
  });
  for (int i = 0; i < 5; ++i) reclaimer.Later(Drains::kOrdinary, calls(i));
  calls.Await(5);
  CHECK(calls.made == std::vector{0, 1, 2, 3, 4});
  CHECK(elsewhere);
}

TEST_CASE_METHOD(StandInSession, "A call waits until the work in flight is complete") {
  Calls calls;
  REQUIRE(Submit(0).ok());
  std::atomic<bool> early{false};
  reclaimer.Later(Drains::kOrdinary, [&] { early = Busy(); });
  reclaimer.Later(Drains::kOrdinary, calls(1));
  // Other work goes on meanwhile.
  for (int i = 0; i < 100; ++i) {
    REQUIRE(Submit(1).ok());
    streams[1].in_flight = 0;
  }
  CHECK(calls.count == 0);
  streams[0].in_flight = 0;
  calls.Await(1);
  CHECK_FALSE(early);
}

TEST_CASE_METHOD(
    StandInSession,
    "While the urgent group is busy, a call that drains both groups changes no time slice") {
  std::atomic<int> changes{0};
  context.ordinary.slice =
      std::make_unique<OrdinarySlice>([&](std::chrono::microseconds) { ++changes; });
  context.ordinary.slice->ShareWith([] { return true; });
  context.set_urgent(std::make_unique<CudaGroup>(context, nullptr, /*urgent=*/true));
  StandInStream stream;
  const auto state =
      std::make_shared<StreamState>(*context.urgent(), reinterpret_cast<CUstream>(&stream));
  context.urgent()->AddStream(state);
  CudaQueue queue(reclaimer, state);
  REQUIRE(queue.Fill(*space, {kBase, 0, 16}).ok());
  Calls calls;
  reclaimer.Later(Drains::kBoth, calls(1));
  while (stream.queries < 10) std::this_thread::yield();
  CHECK(changes == 0);
  stream.in_flight = 0;
  calls.Await(1);
  while (changes < 2) std::this_thread::yield();
  space.reset();  // it knows the stream
}

TEST_CASE_METHOD(StandInSession, "What is left at the end is made in spite of work in flight") {
  Calls calls;
  REQUIRE(Submit(0).ok());
  {
    DeferredReclaimer other(context);
    other.Later(Drains::kOrdinary, calls(1));
    other.Later(Drains::kOrdinary, calls(2));
  }
  CHECK(calls.made == std::vector{1, 2});
}

TEST_CASE_METHOD(StandInSession, "The loss of a device is found while work is in flight") {
  REQUIRE(Submit(0).ok());
  streams[0].error = CUDA_ERROR_LAUNCH_FAILED;
  while (!context.lost()) std::this_thread::yield();
  CHECK_FALSE(context.health().ok());
  CHECK_FALSE(space->fault().ok());

  Calls calls;
  {
    DeferredReclaimer other(context);
    other.Later(Drains::kOrdinary, calls(1));
  }
  CHECK(calls.made.empty());  // the driver would fail in each of them
}

TEST_CASE_METHOD(StandInSession, "A reclaimer that has slept finds the loss of later work") {
  REQUIRE(Submit(0).ok());
  streams[0].in_flight = 0;
  // Longer than the thread polls without work in flight.
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  REQUIRE(Submit(1).ok());
  streams[1].error = CUDA_ERROR_ILLEGAL_ADDRESS;
  while (!context.lost()) std::this_thread::yield();
}

}  // namespace
}  // namespace detshare::cuda
