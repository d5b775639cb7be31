#include "server/backends/cuda/cuda_group.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

using std::chrono::steady_clock;

void SpinFor(steady_clock::duration time) {
  const auto end = steady_clock::now() + time;
  while (steady_clock::now() < end) {
  }
}

// Its streams receive an operation some time after the call has begun, as those of a GPU do.
DriverApi SlowStandInDriver() {
  DriverApi api = StandInDriver();
  api.cuMemsetD8Async = [](CUdeviceptr, unsigned char, size_t, CUstream stream) {
    SpinFor(std::chrono::microseconds(2));
    ++StreamOf(stream).in_flight;
    return CUDA_SUCCESS;
  };
  return api;
}

// Of this thread: the current context, and that of the latest submission.
thread_local CUcontext t_made_current, t_submitted_in;

DriverApi DriverThatNotesContexts() {
  DriverApi api = StandInDriver();
  api.cuCtxSetCurrent = [](CUcontext context) {
    t_made_current = context;
    return CUDA_SUCCESS;
  };
  api.cuMemsetD8Async = [](CUdeviceptr, unsigned char, size_t, CUstream) {
    t_submitted_in = t_made_current;
    return CUDA_SUCCESS;
  };
  return api;
}

TEST_CASE("Work is submitted in its group's context, also when a stream of the other group ends") {
  StandInSession session(DriverThatNotesContexts());
  CudaGroup other(session.context, reinterpret_cast<CUcontext>(&session), /*urgent=*/true);
  StandInStream stream;
  auto state = std::make_shared<StreamState>(other, reinterpret_cast<CUstream>(&stream));
  session.space->Use(state);
  // Another session has used the stream, and it and the queue are gone. This session keeps the stream.
  state->space = nullptr;
  const std::weak_ptr<StreamState> kept = std::exchange(state, nullptr);
  REQUIRE_FALSE(kept.expired());
  t_submitted_in = other.context;
  REQUIRE(session.Submit(0).ok());
  CHECK(kept.expired());
  CHECK(t_submitted_in == session.context.ordinary.context);
  session.context.ordinary.Enter();
}

struct SlowDriverSession : StandInSession {
  SlowDriverSession() : StandInSession(SlowStandInDriver()) {}
};

TEST_CASE_METHOD(StandInSession,
                 "A group is busy until the work of all of its streams is complete") {
  CudaGroup& group = context.ordinary;
  CHECK_FALSE(group.Busy());
  REQUIRE(Submit(0).ok());
  REQUIRE(Submit(2).ok());
  CHECK(group.Busy());
  streams[0].in_flight = 0;
  CHECK(group.Busy());
  streams[2].in_flight = 0;
  CHECK_FALSE(group.Busy());
}

TEST_CASE_METHOD(StandInSession, "A group is busy while a thread submits work") {
  const auto state = context.ordinary.Streams()[1];
  state->entering = true;
  CHECK(context.ordinary.Busy());
  ++state->submitted;
  CHECK(context.ordinary.Busy());
  CHECK(state->submitted != state->completed);
  state->entering = false;
  CHECK_FALSE(context.ordinary.Busy());
  CHECK(state->submitted == state->completed);
}

TEST_CASE_METHOD(SlowDriverSession,
                 "Work that a thread submits meanwhile never counts as complete") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> askers;
  for (int i = 0; i < 2; ++i) {
    askers.emplace_back([&] {
      while (!stop) context.ordinary.Busy();
    });
  }
  const auto state = context.ordinary.Streams()[0];
  int refused = 0, forgotten = 0;
  const auto end = steady_clock::now() + std::chrono::milliseconds(500);
  while (steady_clock::now() < end) {
    refused += !Submit(0).ok();
    SpinFor(std::chrono::microseconds(1));
    forgotten += state->submitted == state->completed;
    streams[0].in_flight = 0;
  }
  stop = true;
  for (std::thread& thread : askers) thread.join();
  CHECK(refused == 0);
  CHECK(forgotten == 0);
}

}  // namespace
}  // namespace detshare::cuda
