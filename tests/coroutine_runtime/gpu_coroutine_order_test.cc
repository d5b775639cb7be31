// Random programs against a model of CUDA's ordering rules. Every operation must come after exactly
// the operations that CUDA requires, however the session moves between partitions.
#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "coroutine_runtime/gpu_coroutine.h"
#include "tests/coroutine_runtime/fake_device.h"

namespace detshare {
namespace {

void Add(History& to, const History& from) { to.insert(from.begin(), from.end()); }

// CUDA's rules. A stream's history is everything that its next operation comes after.
class CudaModel {
 public:
  void CreateStream(StreamId id, ContextId context, bool non_blocking, bool legacy) {
    streams_[id] = Stream{context, !non_blocking && !legacy, legacy, {}};
  }

  // The stream's work goes on, and other streams still wait for it.
  void DestroyStream(StreamId id) {
    ended_.push_back(streams_[id]);
    streams_.erase(id);
  }

  // Returns what an operation on the stream comes after. The operation adds `effects` to the
  // stream's history.
  History Operation(StreamId id, const History& effects) {
    Stream& stream = streams_[id];
    if (stream.legacy) {
      AddBlocking(stream.history, stream.context);
    } else if (stream.blocking) {
      Add(stream.history, legacy_[stream.context]);
    }
    const History before = stream.history;
    Add(stream.history, effects);
    if (stream.legacy) legacy_[stream.context] = stream.history;
    return before;
  }

  // The operations that must be complete when a wait for the stream ends.
  History OfStream(StreamId id) {
    History history = streams_[id].history;
    if (streams_[id].legacy) AddBlocking(history, streams_[id].context);
    return history;
  }

  History OfContext(ContextId context) {
    History history;
    ForEach([&](const Stream& stream) {
      if (stream.context == context) Add(history, stream.history);
    });
    return history;
  }

 private:
  struct Stream {
    ContextId context = 0;
    bool blocking = false, legacy = false;
    History history;
  };

  template <typename Function>
  void ForEach(Function function) {
    for (auto& [id, stream] : streams_) function(stream);
    for (Stream& stream : ended_) function(stream);
  }
  void AddBlocking(History& to, ContextId context) {
    ForEach([&](const Stream& stream) {
      if (stream.blocking && stream.context == context) Add(to, stream.history);
    });
  }

  std::map<StreamId, Stream> streams_;
  std::vector<Stream> ended_;
  std::map<ContextId, History> legacy_;  // up to the legacy stream's last operation
};

enum class Moves { kNever, kAlways, kSometimes };

void RunRandomProgram(unsigned seed, Moves moves) {
  INFO("seed " << seed << ", moves " << static_cast<int>(moves));
  std::mt19937 program(seed), mover(seed + 1);
  FakeDevice device;
  std::unique_ptr<AddressSpace> space = *device.CreateAddressSpace(1ull << 40, 1ull << 40);
  std::unique_ptr<Partition> low = *device.CreatePartition(0, 8);
  std::unique_ptr<Partition> high = *device.CreatePartition(8, 8);
  const std::array<Partition*, 3> partitions = {&device.whole(), low.get(), high.get()};
  QueuePool pool(device);
  Executor executor;
  std::unique_ptr<GpuCoroutine> coroutine = *GpuCoroutine::Create(device, *space, pool, executor);
  CudaModel model;
  FakeKernel kernel;

  constexpr ContextId kContexts = 2;
  std::map<StreamId, ContextId> streams;
  StreamId next_stream = 1;
  const auto create = [&](ContextId context, bool non_blocking, bool legacy) {
    const StreamId id = next_stream++;
    REQUIRE(coroutine->CreateStream(id, context, {non_blocking, legacy, 0}).ok());
    model.CreateStream(id, context, non_blocking, legacy);
    streams[id] = context;
  };
  const auto random = [&](int below) { return static_cast<int>(program() % below); };
  for (ContextId context = 1; context <= kContexts; ++context) {
    create(context, false, true);
    create(context, false, false);
    create(context, true, false);
  }
  std::map<EventId, History> events;
  for (EventId event = 1; event <= 4; ++event) {
    REQUIRE(coroutine->CreateEvent(event, 1 + event % kContexts, false).ok());
    events[event];
  }
  std::deque<std::atomic<uint64_t>> fences;  // stable addresses
  const auto expect_signal = [&](const std::atomic<uint64_t>* fence, const History& history) {
    const auto written = device.fences.find({fence, 1});
    if (written == device.fences.end()) {
      REQUIRE(fence->load() == 1);  // at once, because there was nothing to wait for
      REQUIRE(history.empty());
    } else {
      REQUIRE(written->second == history);
    }
  };

  uint64_t host_value = 0;
  for (int step = 0; step < 150; ++step) {
    if (moves == Moves::kAlways || (moves == Moves::kSometimes && mover() % 4 == 0)) {
      coroutine->Bind(*partitions[mover() % partitions.size()]);
    }
    auto picked = streams.begin();
    std::advance(picked, random(static_cast<int>(streams.size())));
    const StreamId stream = picked->first;
    const EventId event = 1 + random(4);
    const int64_t number = static_cast<int64_t>(device.operations.size());
    switch (random(12)) {
      default:
        REQUIRE(coroutine->Launch(stream, kernel, {}, {}).ok());
        REQUIRE(device.operations[number].before == model.Operation(stream, {number}));
        break;
      case 0:
        REQUIRE(coroutine->Copy(stream, {}).ok());
        REQUIRE(device.operations[number].before == model.Operation(stream, {number}));
        break;
      case 1:
        fences.emplace_back(0);
        REQUIRE(coroutine->RecordEvent(event, stream, &fences.back(), 1).ok());
        events[event] = model.Operation(stream, {});
        expect_signal(&fences.back(), events[event]);
        break;
      case 2:
        REQUIRE(coroutine->WaitEvent(stream, event).ok());
        model.Operation(stream, events[event]);
        break;
      case 3:
        fences.emplace_back(0);
        REQUIRE(coroutine->Signal(stream, &fences.back(), 1).ok());
        expect_signal(&fences.back(), model.OfStream(stream));
        break;
      case 4:
        fences.emplace_back(0);
        REQUIRE(coroutine->SignalContext(picked->second, &fences.back(), 1).ok());
        expect_signal(&fences.back(), model.OfContext(picked->second));
        break;
      case 5: {
        fences.emplace_back(0);
        std::atomic<uint64_t>* reached = &fences.back();
        fences.emplace_back(0);
        ++host_value;
        REQUIRE(
            coroutine->HostFunction(stream, reached, 1, &fences.back(), 1000 + host_value).ok());
        expect_signal(reached, model.Operation(stream, {-static_cast<int64_t>(1000 + host_value)}));
        break;
      }
      case 6:
        if (streams.size() < 10) create(picked->second, random(2) == 0, false);
        break;
      case 7: {
        // The first stream of each context is the legacy one, which cannot be destroyed.
        const bool legacy = stream == 1 || stream == 4;
        REQUIRE(coroutine->DestroyStream(stream).ok() == !legacy);
        if (legacy) break;
        model.DestroyStream(stream);
        streams.erase(stream);
        break;
      }
    }
  }
  for (auto& fence : fences) fence = UINT64_MAX;  // the host functions return
  device.RunAll();
  for (const FakeDevice::Operation& operation : device.operations) REQUIRE(operation.done);
}

TEST_CASE("Operations come after exactly what CUDA requires when the session does not move") {
  for (unsigned seed = 0; seed < 60; ++seed) RunRandomProgram(seed, Moves::kNever);
}

TEST_CASE("Operations come after exactly what CUDA requires when the session moves at every one") {
  for (unsigned seed = 0; seed < 60; ++seed) RunRandomProgram(seed, Moves::kAlways);
}

TEST_CASE("Operations come after exactly what CUDA requires when the session moves at times") {
  for (unsigned seed = 0; seed < 60; ++seed) RunRandomProgram(seed, Moves::kSometimes);
}

}  // namespace
}  // namespace detshare
