#include "server/backends/cuda/graph_order.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/backends/cuda/graph_gate.h"
#include "server/backends/cuda/ordinary_slice.h"
#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

struct TestGraph {
  uintptr_t executable;
  bool conditional;
};
constexpr TestGraph kPlain{1, false}, kOtherPlain{2, false};
constexpr TestGraph kConditional{3, true}, kOtherConditional{4, true};

// What the GPU writes behind the graphs of a stream.
std::map<StandInStream*, std::pair<std::atomic<uint64_t>*, uint64_t>> g_writes;

DriverApi WritingDriver() {
  DriverApi api = StandInDriver();
  api.cuStreamWriteValue64 = [](CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
    g_writes[&StreamOf(stream)] = {reinterpret_cast<std::atomic<uint64_t>*>(address), value};
    return CUDA_SUCCESS;
  };
  return api;
}

struct GraphSession : StandInSession {
  using StandInSession::StandInSession;
  GraphOrder& order = context.ordinary.graph_order;

  GraphOrder::Launch In(int stream, TestGraph graph) {
    return {reinterpret_cast<CUgraphExec>(graph.executable),
            reinterpret_cast<CUstream>(&streams[stream]), graph.conditional};
  }
  // Catch2's checks are for one thread.
  absl::Status Launch(int stream, TestGraph graph) {
    absl::StatusOr<GraphOrder::Place> place = order.Enter(*space, In(stream, graph));
    if (!place.ok()) return place.status();
    if (place->Await() != CUDA_SUCCESS) return absl::InternalError("Await");
    ++streams[stream].in_flight;
    return place->Launched() == CUDA_SUCCESS ? absl::OkStatus() : absl::InternalError("Launched");
  }
  void End(int stream) { streams[stream].in_flight = 0; }
};

// A launch in a thread of its own.
class Launching {
 public:
  Launching(GraphSession& session, int stream, TestGraph graph)
      : thread_([this, &session, stream, graph] {
          status_ = session.Launch(stream, graph);
          made_ = true;
        }) {}
  ~Launching() {
    if (thread_.joinable()) thread_.join();
  }
  // Gives the thread time for a launch that should wait.
  bool made() const {
    for (int i = 0; i < 200; ++i) std::this_thread::yield();
    return made_;
  }
  absl::Status Join() {
    thread_.join();
    return *status_;
  }

 private:
  std::optional<absl::Status> status_;
  std::atomic<bool> made_{false};
  std::thread thread_;
};

// On a GPU whose slices change.
struct GatedSession : GraphSession {
  ManualClock clock;
  SliceWords words;
  GraphGate* gate = nullptr;
  GatedSession() : GraphSession(WritingDriver()) {
    context.graph_gate = std::make_unique<GraphGate>(words, nullptr, 0, clock);
    gate = context.graph_gate.get();
    g_writes.clear();
    order.AddConditional();
  }
  void EndAndWrite(int stream) {
    End(stream);
    const auto [address, value] = g_writes.at(&streams[stream]);
    *address = value;
  }
  // Whether a slice can change at once.
  bool Open() {
    const bool open = words.entering == 0 && words.launched[0] == words.ended[0];
    if (open) gate->Change([] {});
    return open;
  }
};

TEST_CASE_METHOD(GatedSession,
                 "A conditional graph is in flight for the gate until the GPU has ended it") {
  CHECK(Open());
  REQUIRE(Launch(0, kConditional).ok());
  REQUIRE(Launch(0, kConditional).ok());
  CHECK_FALSE(Open());
  EndAndWrite(0);
  CHECK(words.ended[0] == 2);
  CHECK(Open());
}

TEST_CASE_METHOD(GatedSession, "Plain graphs do not close the gate") {
  REQUIRE(Launch(0, kPlain).ok());
  CHECK(Open());
  CHECK(g_writes.empty());
}

TEST_CASE_METHOD(GatedSession, "A conditional graph is not launched while a slice changes") {
  std::optional<Launching> launching;
  gate->Change([&] {
    launching.emplace(*this, 0, kConditional);
    CHECK_FALSE(launching->made());
  });
  CHECK(launching->Join().ok());
  CHECK_FALSE(Open());
}

TEST_CASE_METHOD(GatedSession, "Holds end before a conditional graph of their group is launched") {
  bool closed = false;
  int asked = 0;
  gate->HaveHolds([&] {
    closed = gate->Closed(/*group=*/true);
    return ++asked == 2;
  });
  REQUIRE(Launch(0, kConditional).ok());
  CHECK(asked == 0);  // the ordinary group has no holds
  context.set_urgent(
      std::make_unique<CudaGroup>(context, context.ordinary.context, /*urgent=*/true));
  GraphOrder& urgent = context.urgent()->graph_order;
  urgent.AddConditional();
  std::optional<GraphOrder::Place> place = *urgent.Enter(*space, In(1, kConditional));
  REQUIRE(place->Await() == CUDA_SUCCESS);
  CHECK(asked == 2);
  CHECK(closed);
}

TEST_CASE_METHOD(GatedSession,
                 "A launch that the driver refuses counts as ended when its stream comes there") {
  {
    std::optional<GraphOrder::Place> place = *order.Enter(*space, In(0, kConditional));
    REQUIRE(place->Await() == CUDA_SUCCESS);
    CHECK_FALSE(Open());
  }
  CHECK(words.entering == 0);
  EndAndWrite(0);
  CHECK(Open());
}

TEST_CASE_METHOD(GatedSession,
                 "A conditional graph waits for the end of a launch that the driver has refused") {
  streams[0].in_flight = 1;  // the write behind the refused launch comes late
  {
    std::optional<GraphOrder::Place> place = *order.Enter(*space, In(0, kConditional));
    REQUIRE(place->Await() == CUDA_SUCCESS);
  }
  Launching next(*this, 1, kConditional);
  CHECK_FALSE(next.made());
  EndAndWrite(0);
  CHECK(next.Join().ok());
  EndAndWrite(1);
  CHECK(words.ended[0] == 2);
  CHECK(Open());
}

TEST_CASE_METHOD(GatedSession, "A place that is given up before its launch closes nothing") {
  std::optional<GraphOrder::Place> place = *order.Enter(*space, In(0, kConditional));
  CHECK(Open());
  place.reset();
  CHECK(Open());
}

TEST_CASE_METHOD(GraphSession, "Plain graphs need a place while there are conditional graphs") {
  CHECK_FALSE(order.applies());
  order.AddConditional();
  order.AddConditional();
  order.RemoveConditional();
  CHECK(order.applies());
  order.RemoveConditional();
  CHECK_FALSE(order.applies());
}

TEST_CASE_METHOD(GraphSession,
                 "While there are conditional graphs, the ordinary group has the driver's slice") {
  std::vector<std::chrono::microseconds> slices;
  context.ordinary.slice = std::make_unique<OrdinarySlice>(
      [&](std::chrono::microseconds slice) { slices.push_back(slice); });
  order.AddConditional();
  order.AddConditional();
  CHECK(slices == std::vector{OrdinarySlice::kDefault});
  order.RemoveConditional();
  CHECK(slices.size() == 1);
  order.RemoveConditional();
  CHECK(slices == std::vector{OrdinarySlice::kDefault, OrdinarySlice::kShort});
}

TEST_CASE_METHOD(GraphSession, "A conditional graph waits until the graphs of other streams end") {
  order.AddConditional();
  REQUIRE(Launch(0, kPlain).ok());
  REQUIRE(Launch(1, kOtherPlain).ok());
  Launching conditional(*this, 2, kConditional);
  CHECK_FALSE(conditional.made());
  End(0);
  CHECK_FALSE(conditional.made());
  End(1);
  CHECK(conditional.Join().ok());
}

TEST_CASE_METHOD(GraphSession, "Other graphs wait until a conditional graph ends") {
  order.AddConditional();
  REQUIRE(Launch(0, kConditional).ok());
  const TestGraph other = GENERATE(kPlain, kOtherConditional);
  Launching waits(*this, 1, other);
  CHECK_FALSE(waits.made());
  End(0);
  CHECK(waits.Join().ok());
}

TEST_CASE_METHOD(GraphSession, "Plain graphs do not wait for each other") {
  order.AddConditional();
  REQUIRE(Launch(0, kPlain).ok());
  CHECK(Launch(1, kPlain).ok());
  CHECK(Launch(1, kOtherPlain).ok());
}

TEST_CASE_METHOD(GraphSession, "A conditional graph may be in flight several times in one stream") {
  order.AddConditional();
  REQUIRE(Launch(0, kConditional).ok());
  CHECK(Launch(0, kConditional).ok());
  Launching elsewhere(*this, 1, kConditional);
  CHECK_FALSE(elsewhere.made());
  End(0);
  CHECK(elsewhere.Join().ok());
}

TEST_CASE_METHOD(GraphSession, "In one stream, only different conditional graphs wait") {
  order.AddConditional();
  REQUIRE(Launch(0, kPlain).ok());
  REQUIRE(Launch(0, kConditional).ok());
  REQUIRE(Launch(0, kPlain).ok());
  Launching other(*this, 0, kOtherConditional);
  CHECK_FALSE(other.made());
  End(0);
  CHECK(other.Join().ok());
}

TEST_CASE_METHOD(GraphSession, "Who comes later does not overtake a graph that waits") {
  order.AddConditional();
  REQUIRE(Launch(0, kPlain).ok());
  Launching conditional(*this, 1, kConditional);
  while (streams[0].event_queries == 0) std::this_thread::yield();  // it has come
  Launching later(*this, 2, kPlain);
  CHECK_FALSE(later.made());
  End(0);
  CHECK(conditional.Join().ok());
  CHECK_FALSE(later.made());
  End(1);
  CHECK(later.Join().ok());
}

TEST_CASE_METHOD(
    GraphSession,
    "The first conditional graph waits for what was in flight when its handle was made") {
  REQUIRE(Submit(0).ok());  // may be a graph
  order.AddConditional();
  Launching conditional(*this, 1, kConditional);
  CHECK_FALSE(conditional.made());
  End(0);
  CHECK(conditional.Join().ok());
}

TEST_CASE_METHOD(GraphSession, "A place that is given up lets the next graph go on") {
  order.AddConditional();
  std::optional<GraphOrder::Place> place = *order.Enter(*space, In(0, kConditional));
  Launching waits(*this, 1, kPlain);
  CHECK_FALSE(waits.made());
  place.reset();
  CHECK(waits.Join().ok());
}

TEST_CASE_METHOD(GraphSession,
                 "A launch in an idle moment goes before those that wait, and that have a place") {
  order.AddConditional();
  std::optional<GraphOrder::Place> place = *order.Enter(*space, In(0, kConditional));
  Launching waits(*this, 1, kPlain);
  CHECK_FALSE(waits.made());
  CHECK_FALSE(place->overtaken());
  GraphOrder::Place idle = order.EnterIdle(In(2, kOtherConditional));
  CHECK(place->overtaken());
  CHECK_FALSE(idle.overtaken());
  REQUIRE(idle.Await() == CUDA_SUCCESS);
  CHECK(streams[2].waited_for.empty());
  ++streams[2].in_flight;
  REQUIRE(idle.Launched() == CUDA_SUCCESS);
  place.reset();
  CHECK_FALSE(waits.made());
  Launching again(*this, 0, kConditional);
  CHECK_FALSE(again.made());
  End(2);
  // The threads of both may have come in either order.
  while (!waits.made() || !again.made()) {
    End(0);
    End(1);
  }
  CHECK(waits.Join().ok());
  CHECK(again.Join().ok());
}

TEST_CASE_METHOD(GraphSession,
                 "A launch in an idle moment leaves their places to those that may run beside it") {
  order.AddConditional();
  GraphOrder::Place plain = *order.Enter(*space, In(0, kPlain));
  GraphOrder::Place idle = order.EnterIdle(In(1, kOtherPlain));
  CHECK_FALSE(plain.overtaken());
}

TEST_CASE_METHOD(GraphSession, "A launch of a session that is over waits no more") {
  order.AddConditional();
  REQUIRE(Launch(0, kConditional).ok());
  Launching waits(*this, 1, kPlain);
  CHECK_FALSE(waits.made());
  space->Abandon();
  CHECK(CudaResultOf(waits.Join()) == kCudaErrorDeinitialized);
}

TEST_CASE_METHOD(GraphSession,
                 "While a stream waits for its client, the GPU keeps graphs apart instead") {
  std::atomic<uint64_t> fence{0};
  order.AddConditional();
  REQUIRE(Launch(0, kConditional).ok());
  CHECK(streams[0].waited_for.empty());
  Launching waits(*this, 1, kPlain);
  CHECK_FALSE(waits.made());
  REQUIRE(queues[2]->WaitFence(*space, &fence, 7).ok());
  CHECK(waits.Join().ok());
  CHECK(streams[1].waited_for == std::set<const StandInStream*>{&streams[0]});
  fence = 7;
}

TEST_CASE_METHOD(GraphSession, "While a launch waits, the session gives up its turn") {
  struct Turn : CallWait {
    std::atomic<int> suspended{0}, asked{0};
    void Suspend() override { ++suspended; }
    bool Resume() override { return ++asked > 2; }
  } turn;
  order.AddConditional();
  REQUIRE(Launch(0, kConditional).ok());
  std::thread ends([&] {
    while (turn.suspended == 0) std::this_thread::yield();
    End(0);
  });
  space->set_call_wait(&turn);
  CHECK(Launch(1, kPlain).ok());
  ends.join();
  CHECK(turn.asked == 3);
  space->set_call_wait(nullptr);
}

TEST_CASE_METHOD(GraphSession, "Graphs of several threads are kept apart") {
  order.AddConditional();
  enum Kind { kNothing, kPlainRuns, kConditionalRuns };
  std::array<std::atomic<Kind>, kStreams> running{};
  std::atomic<int> beside{0}, failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 500; ++round) {
        const bool conditional = (round + i) % 3 == 0;
        const Kind kind = conditional ? kConditionalRuns : kPlainRuns;
        absl::StatusOr<GraphOrder::Place> place =
            order.Enter(*space, In(i, {static_cast<uintptr_t>(i + 1), conditional}));
        ++streams[i].in_flight;
        running[i] = kind;
        failed += !place.ok() || place->Launched() != CUDA_SUCCESS;
        for (int other = 0; other < kStreams; ++other) {
          const Kind now = running[other];
          beside += other != i && now != kNothing && (conditional || now == kConditionalRuns);
        }
        std::this_thread::yield();
        running[i] = kNothing;
        streams[i].in_flight = 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(beside == 0);
}

}  // namespace
}  // namespace detshare::cuda
