#include "server/backends/cuda/graph_order.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <vector>

#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

using Streams = std::set<const StandInStream*>;

struct GraphSession : StandInSession {
  GraphOrder& order = context.ordinary.graph_order;

  // Launches a graph. Returns the streams for which its stream has to wait.
  Streams Launch(int number, bool conditional) {
    StandInStream& stream = streams[number];
    stream.waited_for.clear();
    const CUresult result = order.Submit(reinterpret_cast<CUstream>(&stream), conditional, [&] {
      ++stream.in_flight;
      return CUDA_SUCCESS;
    });
    REQUIRE(result == CUDA_SUCCESS);
    return stream.waited_for;
  }
  const StandInStream* Number(int stream) const { return &streams[stream]; }
};

constexpr bool kConditional = true, kPlain = false;

TEST_CASE_METHOD(GraphSession, "Without conditional graphs, graphs wait for nothing") {
  CHECK(Launch(0, kPlain).empty());
  CHECK(Launch(1, kPlain).empty());
  CHECK(Launch(0, kPlain).empty());
}

TEST_CASE_METHOD(GraphSession, "A conditional graph waits for the graphs of other streams") {
  order.AddConditional();
  Launch(0, kPlain);
  Launch(1, kPlain);
  CHECK(Launch(2, kConditional) == Streams{Number(0), Number(1)});
  SECTION("also for those that came later") {
    Launch(0, kPlain);
    streams[1].in_flight = 0;
    CHECK(Launch(2, kConditional) == Streams{Number(0)});
  }
  SECTION("not for those that have ended") {
    streams[0].in_flight = streams[1].in_flight = 0;
    CHECK(Launch(2, kConditional).empty());
  }
}

TEST_CASE_METHOD(GraphSession, "Graphs wait for a conditional graph, until it has ended") {
  order.AddConditional();
  CHECK(Launch(0, kConditional).empty());
  CHECK(Launch(1, kPlain) == Streams{Number(0)});
  CHECK(Launch(2, kConditional) == Streams{Number(0), Number(1)});
  streams[0].in_flight = 0;
  CHECK(Launch(1, kPlain) == Streams{Number(2)});
  streams[2].in_flight = 0;
  CHECK(Launch(0, kPlain).empty());
}

TEST_CASE_METHOD(GraphSession, "Plain graphs do not wait for each other") {
  order.AddConditional();
  Launch(0, kPlain);
  CHECK(Launch(1, kPlain).empty());
}

TEST_CASE_METHOD(GraphSession, "Graphs of one stream wait for nothing") {
  order.AddConditional();
  Launch(0, kConditional);
  CHECK(Launch(0, kConditional).empty());
  CHECK(Launch(0, kPlain).empty());
  CHECK(Launch(0, kConditional).empty());
}

TEST_CASE_METHOD(
    GraphSession,
    "The first conditional graph waits for what was in flight when its handle was made") {
  REQUIRE(Submit(0).ok());  // may be a graph
  order.AddConditional();
  CHECK(Launch(1, kConditional) == Streams{Number(0)});
}

TEST_CASE_METHOD(GraphSession, "After the last conditional graph, graphs wait for nothing") {
  order.AddConditional();
  order.AddConditional();
  Launch(0, kConditional);
  order.RemoveConditional();
  CHECK(Launch(1, kPlain) == Streams{Number(0)});
  order.RemoveConditional();
  CHECK(Launch(1, kPlain).empty());
}

TEST_CASE_METHOD(GraphSession, "A graph that is refused is behind nothing and before nothing") {
  order.AddConditional();
  CHECK(order.Submit(reinterpret_cast<CUstream>(&streams[0]), kConditional,
                     [] { return CUDA_ERROR_INVALID_VALUE; }) == CUDA_ERROR_INVALID_VALUE);
  streams[0].in_flight = 1;
  CHECK(Launch(1, kPlain).empty());
}

TEST_CASE_METHOD(GraphSession, "Graphs of several threads are kept apart") {
  order.AddConditional();
  enum Kind { kNothing, kPlainRuns, kConditionalRuns };
  std::array<std::atomic<Kind>, kStreams> running{};
  std::atomic<int> beside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      StandInStream& stream = streams[i];
      for (int round = 0; round < 2000; ++round) {
        const Kind kind = (round + i) % 3 == 0 ? kConditionalRuns : kPlainRuns;
        order.Submit(reinterpret_cast<CUstream>(&stream), kind == kConditionalRuns, [&] {
          ++stream.in_flight;
          running[i] = kind;
          for (int other = 0; other < kStreams; ++other) {
            const Kind now = running[other];
            if (other == i || now == kNothing || (kind == kPlainRuns && now == kPlainRuns))
              continue;
            beside += !stream.waited_for.contains(&streams[other]);
          }
          return CUDA_SUCCESS;
        });
        std::this_thread::yield();
        running[i] = kNothing;
        stream.in_flight = 0;
        stream.waited_for.clear();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(beside == 0);
}

}  // namespace
}  // namespace detshare::cuda
