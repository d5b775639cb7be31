// Random programs against a model of CUDA's ordering rules. Every operation must come after exactly
// the operations that CUDA requires, however the session moves between partitions and time-slice
// groups.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
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
    Add(stream.history, barrier_);
    const History before = stream.history;
    Add(stream.history, effects);
    if (stream.legacy) legacy_[stream.context] = stream.history;
    return before;
  }

  // The client takes the stream's last operation for complete.
  void OrderAllBehind(StreamId id) { Add(barrier_, streams_[id].history); }

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
  History barrier_;                      // before every later operation
};

// With kGroups, the session also moves between time-slice groups, and is bound to one in the end.
enum class Moves { kNever, kAlways, kSometimes, kGroups };
// Where streams wait for the client: on the device, or in the daemon (parking.h).
enum class HostWaits { kOnDevice, kParked };

// A session that executes random operations on the fake device, and checks each of them against the
// model.
class RandomProgram {
 public:
  RandomProgram(unsigned seed, Moves moves, HostWaits waits)
      : program_(seed), mover_(seed + 1), moves_(moves), parks_(waits == HostWaits::kParked) {
    for (ContextId context = 1; context <= kContexts; ++context) {
      CreateStream(context, /*non_blocking=*/false, /*legacy=*/true);
      CreateStream(context, /*non_blocking=*/false, /*legacy=*/false);
      CreateStream(context, /*non_blocking=*/true, /*legacy=*/false);
    }
    for (EventId event = 1; event <= kEvents; ++event) {
      REQUIRE(coroutine_->CreateEvent(event, 1 + event % kContexts, false).ok());
    }
    if (moves == Moves::kGroups) device_.submitting = [this] { MoveInLaunch(); };
  }

  // Executes one random operation on a random stream.
  void Step() {
    if (moves_ == Moves::kAlways || (moves_ == Moves::kSometimes && mover_() % 4 == 0)) {
      coroutine_->Bind(*partitions_[mover_() % partitions_.size()]);
    }
    if (moves_ == Moves::kGroups) MoveBetweenGroups();
    if (parks_ && mover_() % 4 == 0) OpenGate(mover_() % 8);
    if (parks_ && mover_() % 16 == 0) RunDevice();
    const auto [stream, context] = *std::next(streams_.begin(), Random(streams_.size()));
    const EventId event = 1 + Random(kEvents);
    switch (Random(12)) {
      case 0:
        return Copy(stream);
      case 1:
        return RecordEvent(event, stream);
      case 2:
        return WaitEvent(event, stream);
      case 3:
        return Signal(stream);
      case 4:
        return SignalContext(context);
      case 5:
        return HostFunction(stream);
      case 6:
        if (streams_.size() < kMaxStreams) CreateStream(context, Random(2) == 0, false);
        return;
      case 7:
        return DestroyStream(stream);
      default:
        return Launch(stream);
    }
  }

  // Lets all host functions return. Then all work must complete.
  void Finish() {
    while (!gates_.empty()) OpenGate(mover_());
    CompleteAll();
    if (parks_) CheckAll();
    for (const FakeDevice::Operation& operation : device_.operations) REQUIRE(operation.done);
  }

  // The number of operations in each time-slice group.
  int urgent() const { return urgent_; }
  int ordinary() const { return ordinary_; }

 private:
  static constexpr ContextId kContexts = 2;
  static constexpr EventId kEvents = 4;
  static constexpr size_t kMaxStreams = 10;

  void CompleteAll() {
    for (std::atomic<uint64_t>& fence : fences_) fence = UINT64_MAX;
    device_.RunAll();
    done_operations_ = operations_;
    done_resumes_ = last_resume_value_;
  }

  // Lets one host function return.
  void OpenGate(size_t which) {
    if (gates_.empty()) return;
    const auto gate = std::next(gates_.begin(), static_cast<int64_t>(which % gates_.size()));
    gate->first->store(static_cast<uint64_t>(gate->second));
    opened_.insert(-gate->second);
    gates_.erase(gate);
    executor_.Poll();
    CheckNewOperations();
  }
  // What is complete from now on need not come before later work.
  void RunDevice() {
    device_.RunAll();
    for (size_t i = 0; i < seen_; ++i)
      if (device_.operations[i].done) complete_.insert(on_device_[i]);
  }
  History WithoutComplete(const History& history) const {
    History left;
    std::set_difference(history.begin(), history.end(), complete_.begin(), complete_.end(),
                        std::inserter(left, left.end()));
    return left;
  }
  // No operation may have come to the device that waits for a host function.
  void CheckNewOperations() {
    for (; seen_ < device_.operations.size(); ++seen_) {
      const uint64_t number = device_.operations[seen_].tag;
      REQUIRE(numbers_.insert(static_cast<int64_t>(number)).second);
      on_device_.push_back(static_cast<int64_t>(number));
      complete_before_.push_back(complete_);
      for (const int64_t before : expected_[number])
        REQUIRE((before >= 0 || opened_.contains(before)));
    }
  }
  // Every operation and signal came after all that CUDA requires. An operation came after nothing else
  // that was not complete.
  void CheckAll() {
    REQUIRE(seen_ == expected_.size());
    const auto comes_after = [&](const History& device, const History& required) {
      History numbers;
      for (const int64_t before : device)
        if (before >= 0) numbers.insert(on_device_[before]);
      return std::all_of(required.begin(), required.end(),
                         [&](int64_t before) { return before < 0 || numbers.contains(before); });
    };
    for (size_t i = 0; i < seen_; ++i) {
      REQUIRE(comes_after(device_.operations[i].before, expected_[on_device_[i]]));
      for (const int64_t before : device_.operations[i].before) {
        if (before < 0) continue;
        const int64_t number = on_device_[before];
        REQUIRE((all_expected_[on_device_[i]].contains(number) ||
                 complete_before_[i].contains(number)));
      }
    }
    for (const auto& [fence, history] : signals_) {
      const auto written = device_.fences.find({fence, 1});
      if (written != device_.fences.end()) REQUIRE(comes_after(written->second, history));
    }
  }

  // Does before an operation what a scheduler, a backend and a worker do.
  void MoveBetweenGroups() {
    if (mover_() % 8 == 0) CompleteAll();  // queues become idle from time to time
    if (mover_() % 64 == 0) {
      if (mover_() % 2 == 0) {
        space_->BindToGroup();
      } else {
        kernel_.bound = true;
      }
    }
    if (mover_() % 16 == 0) coroutine_->Detach();
    if (mover_() % 2 == 0) return;
    Assign();
    if (coroutine_->entity() == nullptr) coroutine_->Attach(entity_);
    REQUIRE(coroutine_->MayRun());
  }
  // Does the same while a launch waits in the device.
  void MoveInLaunch() {
    while (coroutine_->entity() != nullptr && mover_() % 3 == 0) {
      if (mover_() % 8 == 0) CompleteAll();
      Assign();
      coroutine_->SuspendCall();
      if (mover_() % 2 == 0) coroutine_->ResumeCall();
    }
    coroutine_->ResumeCall();
  }
  void Assign() {
    SchedEntity::Assignment assignment;
    assignment.urgent = assignment.preempts = mover_() % 2 == 0;
    assignment.followed = mover_() % 2 == 0;
    assignment.idle.partition = assignment.idle.long_partition =
        assignment.idle.yielding_partition = partitions_[mover_() % partitions_.size()];
    assignment.contended = assignment.tail = assignment.idle;
    assignment.partitions = {low_.get(), high_.get(), &device_.whole(), device_.urgent()};
    assignment.migrate_every = mover_() % 4 == 0 ? 1 : 0;
    entity_.Publish(assignment);
  }

  // Whether an operation, or a value of the host, is known to be complete.
  bool IsDone(int64_t number) const {
    return number >= 0 ? number < done_operations_ : -number <= done_resumes_;
  }
  // Work that is complete does not matter: a stream that leaves an idle queue need not come after
  // its work, and a queue that is used again comes after the work of its earlier stream.
  bool Matches(const History& history, const History& required) const {
    if (moves_ != Moves::kGroups) return history == required;
    History different;
    std::set_symmetric_difference(history.begin(), history.end(), required.begin(), required.end(),
                                  std::inserter(different, different.end()));
    return std::all_of(different.begin(), different.end(),
                       [&](int64_t number) { return IsDone(number); });
  }

  int Random(size_t below) { return static_cast<int>(program_() % below); }
  std::atomic<uint64_t>* NewFence() { return &fences_.emplace_back(0); }

  void CreateStream(ContextId context, bool non_blocking, bool legacy) {
    const StreamId id = next_stream_++;
    REQUIRE(coroutine_->CreateStream(id, context, {non_blocking, legacy, 0}).ok());
    model_.CreateStream(id, context, non_blocking, legacy);
    streams_[id] = context;
    if (legacy) legacy_streams_.insert(id);
  }
  void DestroyStream(StreamId stream) {
    const bool legacy = legacy_streams_.contains(stream);
    REQUIRE(coroutine_->DestroyStream(stream).ok() == !legacy);
    if (legacy) return;
    model_.DestroyStream(stream);
    streams_.erase(stream);
  }

  void Launch(StreamId stream) {
    LaunchShape shape;
    shape.dynamic_shared_bytes = static_cast<uint32_t>(operations_);
    REQUIRE(coroutine_->Launch(stream, kernel_, shape, {}).ok());
    ExpectOperation(stream);
  }
  void Copy(StreamId stream) {
    REQUIRE(coroutine_->Copy(stream, {.width = static_cast<uint64_t>(operations_)}).ok());
    ExpectOperation(stream);
    if (Random(2) == 0) return;
    REQUIRE(coroutine_->OrderAllBehind(stream).ok());
    model_.OrderAllBehind(stream);
  }
  void RecordEvent(EventId event, StreamId stream) {
    std::atomic<uint64_t>* const fence = NewFence();
    REQUIRE(coroutine_->RecordEvent(event, stream, fence, 1).ok());
    events_[event] = model_.Operation(stream, {});
    ExpectSignal(fence, events_[event]);
  }
  void WaitEvent(EventId event, StreamId stream) {
    REQUIRE(coroutine_->WaitEvent(stream, event).ok());
    model_.Operation(stream, events_[event]);
  }
  void Signal(StreamId stream) {
    std::atomic<uint64_t>* const fence = NewFence();
    REQUIRE(coroutine_->Signal(stream, fence, 1).ok());
    ExpectSignal(fence, model_.OfStream(stream));
  }
  void SignalContext(ContextId context) {
    std::atomic<uint64_t>* const fence = NewFence();
    REQUIRE(coroutine_->SignalContext(context, fence, 1).ok());
    ExpectSignal(fence, model_.OfContext(context));
  }
  void HostFunction(StreamId stream) {
    std::atomic<uint64_t>* const reached = NewFence();
    std::atomic<uint64_t>* const resume = NewFence();
    // In histories, the fake device names a value that the host writes by its negative.
    const int64_t value = ++last_resume_value_;
    REQUIRE(
        coroutine_->HostFunction(stream, reached, 1, resume, static_cast<uint64_t>(value)).ok());
    ExpectSignal(reached, model_.Operation(stream, {-value}));
    if (parks_) gates_.emplace_back(resume, value);
  }

  // One more operation, of this stream, comes after what the model says.
  void ExpectOperation(StreamId stream) {
    const int64_t number = operations_++;
    if (parks_) {
      all_expected_.push_back(model_.Operation(stream, {number}));
      expected_.push_back(WithoutComplete(all_expected_.back()));
      return CheckNewOperations();
    }
    REQUIRE(device_.operations.size() == static_cast<size_t>(operations_));
    const FakeDevice::Operation& operation = device_.operations[number];
    REQUIRE(Matches(operation.before, model_.Operation(stream, {number})));
    if (space_->bound()) {
      if (!group_.has_value()) group_ = space_->urgent();
      REQUIRE(operation.urgent == *group_);
    }
    ++(operation.urgent ? urgent_ : ordinary_);
  }
  // The fence is signalled when exactly `history` is complete.
  void ExpectSignal(const std::atomic<uint64_t>* fence, const History& history) {
    if (parks_) {
      signals_.emplace_back(fence, WithoutComplete(history));
      return;
    }
    const auto written = device_.fences.find({fence, 1});
    if (written == device_.fences.end()) {
      REQUIRE(fence->load() == 1);  // at once, because there was nothing to wait for
      REQUIRE(Matches({}, history));
    } else {
      REQUIRE(Matches(written->second, history));
    }
  }

  std::mt19937 program_, mover_;
  const Moves moves_;
  const bool parks_;
  std::deque<std::atomic<uint64_t>> fences_;  // stable addresses
  // Changes the device before anything uses it.
  struct Groups : FakeDevice {
    explicit Groups(bool preempts) {
      if (preempts) EnablePreemption(/*latency_ns=*/190'000);
    }
  };
  Groups device_{moves_ == Moves::kGroups};
  std::unique_ptr<Partition> low_ = *device_.CreatePartition(0, 8);
  std::unique_ptr<Partition> high_ = *device_.CreatePartition(8, 8);
  const std::array<Partition*, 3> partitions_ = {&device_.whole(), low_.get(), high_.get()};
  QueuePool pool_{device_};
  Executor executor_;
  Parking parking_{executor_, parks_ ? Parking::kMaxBytes : 0};
  SchedBoard board_;
  DurationTable durations_{16};
  ManualClock clock_;
  SchedEntity entity_{board_, durations_, clock_, [](SchedEntity::News) {}};
  std::unique_ptr<AddressSpace> space_ = *device_.CreateAddressSpace(1ull << 40, 1ull << 40);
  std::unique_ptr<GpuCoroutine> coroutine_ =
      *GpuCoroutine::Create(device_, *space_, pool_, parking_);
  FakeKernel kernel_;

  CudaModel model_;
  std::map<StreamId, ContextId> streams_;
  std::set<StreamId> legacy_streams_;  // cannot be destroyed
  StreamId next_stream_ = 1;
  std::map<EventId, History> events_;  // up to the last recording
  int64_t operations_ = 0;             // on the device
  int64_t last_resume_value_ = 1000;
  int64_t done_operations_ = 0, done_resumes_ = 0;  // up to these, all are known to be complete
  std::optional<bool> group_;                       // of a session that is bound: whether urgent
  int urgent_ = 0, ordinary_ = 0;                   // operations in each group

  // If work is parked. The device numbers operations in another order.
  std::vector<std::pair<std::atomic<uint64_t>*, int64_t>> gates_;  // closed ones, and their values
  History opened_;                                                 // negative values
  std::vector<History> expected_;         // before each operation, but what was complete
  std::vector<History> all_expected_;     // with that
  std::vector<History> complete_before_;  // each operation in the device's order
  std::vector<std::pair<const std::atomic<uint64_t>*, History>> signals_;
  std::vector<int64_t> on_device_;  // the operations in the device's order
  History numbers_, complete_;
  size_t seen_ = 0;
};

void RunRandomProgram(unsigned seed, Moves moves, HostWaits waits = HostWaits::kOnDevice) {
  INFO("seed " << seed << ", moves " << static_cast<int>(moves));
  RandomProgram program(seed, moves, waits);
  for (int step = 0; step < 150; ++step) program.Step();
  program.Finish();
}

TEST_CASE("Work behind a wait for the client stays in the daemon, and keeps CUDA's order") {
  for (unsigned seed = 0; seed < 150; ++seed) {
    RunRandomProgram(seed, Moves::kNever, HostWaits::kParked);
    RunRandomProgram(seed, Moves::kSometimes, HostWaits::kParked);
  }
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

TEST_CASE("Operations come after exactly what CUDA requires when the session changes its group") {
  int urgent = 0, ordinary = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    RandomProgram program(seed, Moves::kGroups, HostWaits::kOnDevice);
    for (int step = 0; step < 150; ++step) program.Step();
    program.Finish();
    urgent += program.urgent();
    ordinary += program.ordinary();
  }
  CHECK(urgent > 1000);
  CHECK(ordinary > 1000);
}

}  // namespace
}  // namespace detshare
