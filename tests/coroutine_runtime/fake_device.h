// A device for tests of the runtime. Nothing runs until the test asks for it. Every operation knows
// at once what is ordered before it: FakeQueue keeps the set of everything that comes before its
// next item (its "history"). Markers and fences carry histories from queue to queue.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_graph.h"
#include "coroutine_runtime/status_cuda.h"

namespace detshare {

// Numbers of launches. Negative numbers stand for fence values that only the host writes.
using History = std::set<int64_t>;

class FakeDevice;

class FakeMarker final : public Marker {
 public:
  // Lives on after the marker until the point is reached.
  struct Point {
    bool reached = false;
    int64_t time = -1;
    bool urgent = false;  // in the urgent time-slice group
  };
  History history;
  std::shared_ptr<Point> point;  // null: not recorded
  bool timed = false;
};

class FakeKernel final : public Kernel {
 public:
  const KernelInfo& info() const override { return info_; }
  void set_name(const std::string& name) { info_.name = name; }
  absl::Status SetAttribute(int, int) override { return absl::OkStatus(); }
  absl::StatusOr<int> MaxActiveBlocks(const OccupancyQuery&) override { return 1; }
  absl::StatusOr<uint64_t> AvailableDynamicShared(int, int) override { return 0; }
  absl::StatusOr<int> MaxPotentialClusterSize(const LaunchShape&) override { return 1; }
  absl::StatusOr<int> MaxActiveClusters(const LaunchShape&) override { return 1; }
  bool bound_to_group() const override { return bound; }
  bool CanStartIn(bool urgent) const override { return only_in < 0 || (only_in == 1) == urgent; }

  bool bound = false;  // set before the first launch
  int only_in =
      -1;  // the group in which it can start: 0 the ordinary one, 1 the urgent one, -1 both

 private:
  KernelInfo info_;
};

class FakeAddressSpace final : public AddressSpace {
 public:
  FakeAddressSpace(FakeDevice& device, DeviceAddress base, uint64_t size)
      : device_(device), base_(base), size_(size) {}
  ~FakeAddressSpace() override;

  DeviceAddress base() const override { return base_; }
  uint64_t size() const override { return size_; }
  absl::Status Map(DeviceAddress address, uint64_t bytes) override;
  absl::Status Unmap(DeviceAddress address, uint64_t bytes) override;
  absl::Status MapPhysical(DeviceAddress, uint64_t, std::shared_ptr<PhysicalMemory>) override {
    return absl::UnimplementedError("the runtime does not map physical memory");
  }
  absl::Status UnmapPhysical(DeviceAddress, uint64_t) override {
    return absl::UnimplementedError("the runtime does not map physical memory");
  }
  absl::Status SetAccess(DeviceAddress, uint64_t, MemoryAccess) override {
    return absl::UnimplementedError("the runtime does not map physical memory");
  }
  absl::StatusOr<PhysicalRange> Behind(DeviceAddress) const override {
    return absl::UnimplementedError("the runtime does not map physical memory");
  }
  absl::Status RegisterHost(void*, uint64_t) override { return absl::OkStatus(); }
  absl::Status UnregisterHost(void*) override { return absl::OkStatus(); }
  bool Contains(DeviceAddress, uint64_t, bool) const override { return true; }
  absl::Status fault() const override { return fault_result; }
  bool Busy() const override { return busy; }
  void Abandon() override {}

  bool busy = false;
  absl::Status fault_result;
  std::map<DeviceAddress, uint64_t> mapped;
  int maps = 0, unmaps = 0;

 private:
  FakeDevice& device_;
  const DeviceAddress base_;
  const uint64_t size_;
};

// Each launch is one operation of its queue.
class FakeGraph final : public Graph {
 public:
  FakeGraph(FakeDevice& device, int first_sm, bool urgent, const GraphDescription& description);
  ~FakeGraph() override;
  absl::Status Replace(GraphPlace place, const GraphNode& now) override;

  FakeDevice& device;
  const int first_sm;
  const bool urgent;
  GraphDescription description;        // with all changes since
  bool refuses = false;                // refuses all changes
  uint32_t refused_node = UINT32_MAX;  // refuses changes of this node
  History history;                     // of the graph's launches
};

class FakeQueue final : public Queue {
 public:
  FakeQueue(FakeDevice& device, int first_sm, int priority, bool urgent)
      : device_(device), first_sm(first_sm), priority(priority), urgent(urgent) {}
  ~FakeQueue() override;

  absl::Status Launch(AddressSpace&, Kernel&, const LaunchShape& shape,
                      absl::Span<const std::byte>) override;
  absl::Status Copy(AddressSpace&, const CopyRequest&) override;
  absl::Status Fill(AddressSpace&, const FillRequest&) override;
  absl::Status WriteFence(AddressSpace&, std::atomic<uint64_t>* fence, uint64_t value) override;
  absl::Status WaitFence(AddressSpace&, const std::atomic<uint64_t>* fence,
                         uint64_t value) override;
  absl::Status MemoryOps(AddressSpace&, absl::Span<const MemoryOp>) override;
  absl::Status Record(Marker& marker) override;
  absl::Status Wait(Marker& marker) override;
  absl::Status LaunchGraph(AddressSpace& space, Graph& graph,
                           absl::Span<const uint64_t> values) override;
  absl::Status UploadGraph(AddressSpace& space, Graph& graph) override;

  bool Idle() override { return items_.empty(); }

  // Runs the first item if it is ready.
  bool Step();

 private:
  struct Item {
    std::function<bool()> ready;  // empty: always
    std::function<void()> run;
  };
  absl::Status Work(int64_t number);

  FakeDevice& device_;
  History history_;
  std::deque<Item> items_;

 public:
  const int first_sm, priority;
  const bool urgent;  // of the urgent time-slice group
};

class FakePartition final : public Partition {
 public:
  FakePartition(FakeDevice& device, int first, int count, bool urgent = false)
      : device_(device), first_(first), count_(count), urgent_(urgent) {}
  int first_sm() const override { return first_; }
  int sm_count() const override { return count_; }
  absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(int priority) override;

 private:
  FakeDevice& device_;
  const int first_, count_;
  const bool urgent_;
};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(uint64_t granularity = 2 << 20, uint64_t memory_bytes = 1ull << 40)
      : whole_(*this, 0, 16), urgent_(*this, 0, 16, /*urgent=*/true), memory_left(memory_bytes) {
    properties_.sm_count = 16;
    properties_.sm_group = 2;
    properties_.memory_granularity = granularity;
    properties_.total_memory = memory_bytes;
    properties_.greatest_stream_priority = -5;
  }

  const DeviceProperties& properties() const override { return properties_; }
  DeviceProperties& changeable() { return properties_; }
  Partition& whole() override { return whole_; }
  Partition* urgent() override {
    return properties_.preemption.available && urgent_is_open ? &urgent_ : nullptr;
  }
  absl::Status OpenUrgent() override {
    const absl::Status status = opening ? opening() : absl::OkStatus();
    if (status.ok()) urgent_is_open = true;
    return status;
  }
  // Gives the device an urgent time-slice group. Called before anything uses the device.
  void EnablePreemption(int64_t latency_ns) {
    properties_.preemption.available = true;
    properties_.preemption.latency_ns = latency_ns;
  }
  absl::StatusOr<std::unique_ptr<Partition>> CreatePartition(int first, int count) override {
    if (before_partition) before_partition(first);
    if (refuses_partitions) return absl::UnavailableError("the test refuses partitions");
    return std::make_unique<FakePartition>(*this, first, count);
  }
  absl::StatusOr<std::unique_ptr<Marker>> CreateMarker(bool timed) override {
    auto marker = std::make_unique<FakeMarker>();
    marker->timed = timed;
    return marker;
  }
  absl::StatusOr<bool> Reached(Marker& marker) override {
    if (runs_at_once) RunAll();
    const auto& fake = static_cast<FakeMarker&>(marker);
    return fake.point == nullptr || fake.point->reached;
  }
  absl::StatusOr<float> ElapsedMilliseconds(Marker& start, Marker& end) override {
    auto& a = static_cast<FakeMarker&>(start);
    auto& b = static_cast<FakeMarker&>(end);
    if (!a.point->reached || !b.point->reached) return CudaError(kCudaErrorNotReady, "not reached");
    if (a.point->urgent != b.point->urgent && !compares_groups)
      return CudaError(kCudaErrorInvalidHandle, "markers of two time-slice groups");
    return static_cast<float>(b.point->time - a.point->time);
  }
  absl::StatusOr<std::unique_ptr<AddressSpace>> CreateAddressSpace(DeviceAddress base,
                                                                   uint64_t size) override {
    return std::make_unique<FakeAddressSpace>(*this, base, size);
  }
  absl::StatusOr<std::shared_ptr<PhysicalMemory>> CreatePhysicalMemory(uint64_t) override {
    return absl::UnimplementedError("the runtime makes no physical memory");
  }
  absl::StatusOr<std::unique_ptr<Library>> LoadLibrary(AddressSpace&, absl::Span<const std::byte>,
                                                       absl::Span<const JitOptionValue>,
                                                       CompileLogs&, const PlaceManaged&) override {
    return absl::UnimplementedError("no code");
  }
  absl::StatusOr<std::string> Link(absl::Span<const LinkInputImage>,
                                   absl::Span<const JitOptionValue>, CompileLogs&) override {
    return absl::UnimplementedError("no code");
  }
  absl::StatusOr<std::unique_ptr<Graph>> InstantiateGraph(AddressSpace&, Partition& partition,
                                                          const GraphDescription& description,
                                                          GraphPlace* refused) override {
    if (instantiation_error != 0 && partition.sm_count() < properties_.sm_count) {
      *refused = {0, 0};
      return CudaError(instantiation_error, "does not fit");
    }
    return std::make_unique<FakeGraph>(*this, partition.first_sm(), &partition == &urgent_,
                                       description);
  }
  Memory memory() const override { return Memory{memory_left, properties_.total_memory}; }
  absl::StatusOr<Limit> SetLimit(AddressSpace&, int, uint64_t value) override {
    return Limit{value, value};
  }
  absl::Status health() const override { return absl::OkStatus(); }

  // Runs everything that can run. Returns the number of items that ran.
  int RunAll() {
    int ran = 0;
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t i = 0; i < queues.size(); ++i) {
        while (queues[i]->Step()) {
          progress = true;
          ++ran;
        }
      }
    }
    return ran;
  }

  // The launches so far: what comes before each, and where it was queued.
  struct Operation {
    History before;
    int first_sm = 0;
    bool done = false;
    int priority = 0;         // of the launch's queue
    int launch_priority = 0;  // the priority that the launch named
    bool urgent = false;      // in the urgent time-slice group
    uint64_t tag = 0;         // dynamic_shared_bytes of a launch, or the width of a copy
  };
  std::vector<Operation> operations;
  const uint64_t* word = nullptr;  // copies move bytes only from here
  // The history of each fence value.
  std::map<std::pair<const std::atomic<uint64_t>*, uint64_t>, History> fences;
  std::vector<FakeQueue*> queues;      // the living queues
  std::vector<FakeGraph*> graphs;      // the living graphs
  int instantiation_error = 0;         // on partitions that are not the whole device
  std::vector<uint64_t> graph_values;  // of the latest launch
  int uploads = 0;
  int queues_made = 0;
  int calls = 0;  // of records and waits of markers
  int64_t now = 0;
  std::function<void(int first)> before_partition;  // called while a partition is made
  std::atomic<bool> urgent_is_open{true};           // requires EnablePreemption()
  std::function<absl::Status()> opening;            // called while the urgent group is opened
  bool refuses_partitions = false;
  bool runs_at_once = false;        // runs everything whenever a fence is queued or a marker asked
  bool compares_groups = true;      // knows the time between markers of two time-slice groups
  int cooperative_limit = 1 << 30;  // the limit of blocks of a cooperative launch, for each SM of
                                    // the partition

 private:
  DeviceProperties properties_;
  FakePartition whole_, urgent_;

 public:
  uint64_t memory_left;
  std::function<void()>
      submitting;  // called while an operation is submitted, before it is in its queue
};

inline FakeAddressSpace::~FakeAddressSpace() {
  device_.RunAll();
  for (const auto& [address, bytes] : mapped) device_.memory_left += bytes;
}

inline absl::Status FakeAddressSpace::Map(DeviceAddress address, uint64_t bytes) {
  const uint64_t granularity = device_.properties().memory_granularity;
  if (bytes == 0 || address % granularity != 0 || bytes % granularity != 0 || address < base_ ||
      address + bytes > base_ + size_) {
    return absl::InternalError("bad range");
  }
  const auto next = mapped.lower_bound(address);
  if ((next != mapped.end() && next->first < address + bytes) ||
      (next != mapped.begin() && std::prev(next)->first + std::prev(next)->second > address)) {
    return absl::InternalError("mapped twice");
  }
  if (bytes > device_.memory_left) return absl::ResourceExhaustedError("the card is full");
  device_.memory_left -= bytes;
  mapped[address] = bytes;
  ++maps;
  return absl::OkStatus();
}

inline absl::Status FakeAddressSpace::Unmap(DeviceAddress address, uint64_t bytes) {
  const auto found = mapped.find(address);
  if (found == mapped.end() || found->second != bytes) return absl::InternalError("not mapped so");
  mapped.erase(found);
  device_.memory_left += bytes;
  ++unmaps;
  return absl::OkStatus();
}

inline FakeQueue::~FakeQueue() { std::erase(device_.queues, this); }

inline absl::Status FakeQueue::Work(int64_t number) {
  items_.push_back({nullptr, [this, number] { device_.operations[number].done = true; }});
  device_.operations.push_back({history_, first_sm, false, priority, 0, urgent, 0});
  history_.insert(number);
  return absl::OkStatus();
}

inline absl::Status FakeQueue::Launch(AddressSpace&, Kernel&, const LaunchShape& shape,
                                      absl::Span<const std::byte>) {
  const int64_t sms = first_sm == 0 ? device_.properties().sm_count : 1;
  if (device_.submitting != nullptr) device_.submitting();
  if (shape.cooperative && shape.grid.x > device_.cooperative_limit * sms) {
    return CudaError(kCudaErrorCooperativeLaunchTooLarge, "too large");
  }
  absl::Status status = Work(static_cast<int64_t>(device_.operations.size()));
  device_.operations.back().launch_priority = shape.priority;
  device_.operations.back().tag = shape.dynamic_shared_bytes;
  return status;
}
inline absl::Status FakeQueue::Copy(AddressSpace&, const CopyRequest& request) {
  if (device_.submitting != nullptr) device_.submitting();
  absl::Status status = Work(static_cast<int64_t>(device_.operations.size()));
  device_.operations.back().tag = request.width;
  if (device_.word != nullptr && request.source == reinterpret_cast<DeviceAddress>(device_.word))
    items_.push_back({nullptr, [request] {
                        std::memcpy(reinterpret_cast<void*>(request.destination),
                                    reinterpret_cast<const void*>(request.source), request.width);
                      }});
  return status;
}
inline absl::Status FakeQueue::Fill(AddressSpace&, const FillRequest&) {
  if (device_.submitting != nullptr) device_.submitting();
  return Work(static_cast<int64_t>(device_.operations.size()));
}

inline absl::Status FakeQueue::MemoryOps(AddressSpace&, absl::Span<const MemoryOp>) {
  return Work(static_cast<int64_t>(device_.operations.size()));
}

inline absl::Status FakeQueue::WriteFence(AddressSpace&, std::atomic<uint64_t>* fence,
                                          uint64_t value) {
  device_.fences[{fence, value}] = history_;
  items_.push_back({nullptr, [fence, value] { fence->store(value, std::memory_order_release); }});
  if (device_.runs_at_once) device_.RunAll();
  return absl::OkStatus();
}

inline absl::Status FakeQueue::WaitFence(AddressSpace&, const std::atomic<uint64_t>* fence,
                                         uint64_t value) {
  const auto written = device_.fences.find({fence, value});
  if (written != device_.fences.end()) {
    history_.insert(written->second.begin(), written->second.end());
  } else {
    history_.insert(-static_cast<int64_t>(value));  // a value that the host writes
  }
  items_.push_back({[fence, value] { return fence->load() >= value; }, [] {}});
  return absl::OkStatus();
}

inline absl::Status FakeQueue::Record(Marker& marker) {
  ++device_.calls;
  auto& fake = static_cast<FakeMarker&>(marker);
  fake.history = history_;
  fake.point = std::make_shared<FakeMarker::Point>();
  fake.point->urgent = urgent;
  items_.push_back({nullptr, [this, point = fake.point] {
                      point->reached = true;
                      point->time = ++device_.now;
                    }});
  return absl::OkStatus();
}

inline absl::Status FakeQueue::Wait(Marker& marker) {
  ++device_.calls;
  auto& fake = static_cast<FakeMarker&>(marker);
  if (fake.point == nullptr) return absl::OkStatus();
  history_.insert(fake.history.begin(), fake.history.end());
  items_.push_back({[point = fake.point] { return point->reached; }, [] {}});
  return absl::OkStatus();
}

inline FakeGraph::FakeGraph(FakeDevice& device, int first_sm, bool urgent,
                            const GraphDescription& description)
    : device(device), first_sm(first_sm), urgent(urgent), description(description) {
  device.graphs.push_back(this);
}
inline FakeGraph::~FakeGraph() { std::erase(device.graphs, this); }

inline absl::Status FakeGraph::Replace(GraphPlace place, const GraphNode& now) {
  if (refuses || place.node == refused_node) return CudaError(910, "refused");
  description.graphs[place.graph].nodes[place.node] = now;
  return absl::OkStatus();
}

inline absl::Status FakeQueue::LaunchGraph(AddressSpace&, Graph& graph,
                                           absl::Span<const uint64_t> values) {
  auto& fake = static_cast<FakeGraph&>(graph);
  if (fake.first_sm != first_sm || fake.urgent != urgent)
    return absl::InternalError("a graph of another partition");
  if (device_.submitting != nullptr) device_.submitting();
  history_.insert(fake.history.begin(), fake.history.end());
  device_.graph_values.assign(values.begin(), values.end());
  absl::Status status = Work(static_cast<int64_t>(device_.operations.size()));
  fake.history = history_;
  return status;
}

inline absl::Status FakeQueue::UploadGraph(AddressSpace&, Graph&) {
  ++device_.uploads;
  return absl::OkStatus();
}

inline bool FakeQueue::Step() {
  if (items_.empty() || (items_.front().ready && !items_.front().ready())) return false;
  const Item item = std::move(items_.front());
  items_.pop_front();
  item.run();
  return true;
}

inline absl::StatusOr<std::unique_ptr<Queue>> FakePartition::CreateQueue(int priority) {
  auto queue = std::make_unique<FakeQueue>(device_, first_, priority, urgent_);
  device_.queues.push_back(queue.get());
  ++device_.queues_made;
  return queue;
}

}  // namespace detshare
