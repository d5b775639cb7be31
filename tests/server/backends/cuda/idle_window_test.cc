#include "server/backends/cuda/idle_window.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

using std::chrono::milliseconds;

TEST_CASE_METHOD(StandInSession,
                 "A call is made while nothing is in flight and nobody submits work") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      // Catch2's checks are for one thread.
      while (!stop) {
        if (!Submit(i).ok()) return;
        if (streams[i].in_flight > 4) streams[i].in_flight = 0;
      }
      streams[i].in_flight = 0;
    });
    threads.emplace_back([&, i] {
      while (!stop) {
        streams[i].in_flight = 0;
        std::this_thread::yield();
      }
    });
  }
  int made = 0, disturbed = 0;
  for (int round = 0; round < 40; ++round) {
    const absl::Status status = idle.Run(*space, [&] {
      ++made;
      const uint64_t before = g_submitted;
      for (int i = 0; i < 20; ++i) std::this_thread::yield();
      disturbed += Busy() || g_submitted != before;
      return absl::OkStatus();
    });
    CHECK(status.ok());
    // Work goes on between two calls.
    const uint64_t before = g_submitted;
    while (g_submitted == before) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(made == 40);
  CHECK(disturbed == 0);
}

// Of this thread.
thread_local CUcontext t_current;

DriverApi DriverWithCurrentContext() {
  DriverApi api = StandInDriver();
  api.cuCtxSetCurrent = [](CUcontext context) {
    t_current = context;
    return CUDA_SUCCESS;
  };
  return api;
}

struct ContextSession : StandInSession {
  CudaGroup other{context, reinterpret_cast<CUcontext>(this), /*urgent=*/true};
  ContextSession() : StandInSession(DriverWithCurrentContext()) {}
  ~ContextSession() { context.ordinary.Enter(); }
};

TEST_CASE_METHOD(ContextSession,
                 "A call is made in its group's context, whichever the session used meanwhile") {
  struct Turn : CallWait {
    CudaGroup& other;
    bool asked = false;
    explicit Turn(CudaGroup& other) : other(other) {}
    void Suspend() override { other.Enter(); }
    bool Resume() override { return std::exchange(asked, true); }
  } turn(other);
  space->set_call_wait(&turn);
  CUcontext in_call = other.context;
  const auto call = [&] { in_call = t_current; };
  CHECK(idle.Run(*space,
                 [&] {
                   call();
                   return absl::OkStatus();
                 })
            .ok());
  CHECK(turn.asked);
  CHECK(in_call == context.ordinary.context);
  other.Enter();
  CHECK(idle.TryRun(call, false));
  CHECK(in_call == context.ordinary.context);
  space->set_call_wait(nullptr);
}

TEST_CASE_METHOD(StandInSession, "A call's own error is returned, and work goes on") {
  CHECK(idle.Run(*space, [] { return absl::InternalError("the call's"); }).message() ==
        "the call's");
  CHECK_FALSE(idle.holding());
  CHECK(Submit(0).ok());
}

TEST_CASE_METHOD(StandInSession,
                 "Work that does not end lets a call with a limit give up, and goes on") {
  REQUIRE(Submit(1).ok());
  bool made = false;
  const auto call = [&] {
    made = true;
    return absl::OkStatus();
  };
  CHECK(absl::IsDeadlineExceeded(idle.Run(*space, call, milliseconds(30))));
  CHECK_FALSE(made);
  CHECK_FALSE(idle.holding());
  CHECK(Submit(0).ok());
  streams[0].in_flight = streams[1].in_flight = 0;
  CHECK(idle.Run(*space, call, milliseconds(30)).ok());
  CHECK(made);
}

TEST_CASE_METHOD(StandInSession,
                 "While a stream waits for its client, a call waits without holding work back") {
  std::atomic<uint64_t> fence{0};
  REQUIRE(queues[0]->WaitFence(*space, &fence, 7).ok());
  std::atomic<bool> made{false};
  std::thread waits([&] {
    idle.Run(*space,
             [&] {
               made = true;
               return absl::OkStatus();
             })
        .IgnoreError();
  });
  for (int i = 0; i < 200; ++i) {
    REQUIRE(Submit(1).ok());  // would wait for ever while work is held back
    streams[1].in_flight = 0;
    std::this_thread::yield();
  }
  CHECK_FALSE(made);
  fence = 7;
  waits.join();
  CHECK(made);
}

TEST_CASE_METHOD(StandInSession,
                 "No call is made for a session that is over, or on a device that is lost") {
  REQUIRE(Submit(2).ok());
  bool made = false;
  const auto call = [&] {
    made = true;
    return absl::OkStatus();
  };
  std::optional<absl::Status> status;
  std::thread waits([&] { status = idle.Run(*space, call); });
  SECTION("over") {
    space->Abandon();
    waits.join();
    CHECK(CudaResultOf(*status) == kCudaErrorDeinitialized);
  }
  SECTION("lost") {
    streams[2].error = CUDA_ERROR_ILLEGAL_ADDRESS;
    waits.join();
    CHECK(CudaResultOf(*status) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  CHECK_FALSE(made);
}

TEST_CASE_METHOD(StandInSession,
                 "A try makes the call if nothing is in flight, or in spite of work that ends") {
  int made = 0;
  const auto call = [&] { ++made; };
  CHECK(idle.TryRun(call, false));
  CHECK(made == 1);
  REQUIRE(Submit(0).ok());
  CHECK_FALSE(idle.TryRun(call, false));
  CHECK(made == 1);
  CHECK(idle.TryRun(call, true));
  CHECK(made == 2);
  std::atomic<uint64_t> fence{0};
  REQUIRE(queues[1]->WaitFence(*space, &fence, 1).ok());
  CHECK_FALSE(idle.TryRun(call, true));
  CHECK(made == 2);
  CHECK_FALSE(idle.holding());
  fence = 1;
}

TEST_CASE_METHOD(StandInSession, "A try on a device that is lost does not make the call") {
  REQUIRE(Submit(0).ok());
  streams[0].error = CUDA_ERROR_LAUNCH_FAILED;
  CHECK_FALSE(idle.TryRun([] { FAIL("made on a lost device"); }, false));
  CHECK_FALSE(idle.TryRun([] { FAIL("made on a lost device"); }, true));
  CHECK(context.lost());
  CHECK_FALSE(idle.holding());
}

TEST_CASE_METHOD(StandInSession, "A try during a call is refused and changes nothing") {
  CHECK(idle.Run(*space,
                 [this] {
                   CHECK_FALSE(idle.TryRun([] { FAIL("made inside another call"); }, true));
                   CHECK(idle.holding());
                   return absl::OkStatus();
                 })
            .ok());
}

}  // namespace
}  // namespace detshare::cuda
