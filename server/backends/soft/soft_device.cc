#include "server/backends/soft/soft_device.h"

#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/soft_core.h"
#include "server/backends/soft/soft_graph.h"
#include "server/backends/soft/soft_image.h"
#include "server/backends/soft/soft_images.h"
#include "server/backends/soft/soft_launch.h"
#include "server/backends/soft/soft_library.h"
#include "server/backends/soft/soft_nested_grids.h"
#include "server/backends/soft/soft_tensor_maps.h"
#include "server/backends/soft/soft_transfer.h"

namespace detshare::soft {
namespace {

constexpr uint64_t kLargestStack = 512 << 10;
constexpr int kUnsupportedLimit = 215;

class SoftQueue final : public Queue {
 public:
  SoftQueue(Core& core, SmRange sms, bool urgent)
      : core_(core), sms_(sms), state_(std::make_shared<QueueState>(urgent)) {}

  void Serve(AddressSpace& space) override { owner_ = StateOf(space); }

  absl::Status Launch(AddressSpace& space, Kernel& kernel, const LaunchShape& shape,
                      absl::Span<const std::byte> parameters) override {
    absl::StatusOr<GridRequest> request =
        PlanLaunch(core_.properties, sms_, StateOf(space), static_cast<SoftKernel&>(kernel), shape,
                   parameters);
    if (!request.ok()) return request.status();
    NumberLaunch(*request, request->space->NextGridId());
    request->quantum = core_.options.quantum;
    request->log = core_.options.log;
    absl::StatusOr<std::unique_ptr<Job>> job = MakeKernelJob(*std::move(request));
    if (!job.ok()) return job.status();
    return SubmitJob(space, *std::move(job));
  }

  absl::Status Copy(AddressSpace& space, const CopyRequest& request) override {
    const auto state_of_side = [&](AddressSpace* side) {
      return StateOf(side != nullptr ? *side : space);
    };
    absl::StatusOr<std::unique_ptr<Job>> job =
        MakeCopy(StateOf(space), state_of_side(request.destination_space),
                 state_of_side(request.source_space), request);
    if (!job.ok()) return job.status();
    return SubmitJob(space, *std::move(job));
  }

  absl::Status Fill(AddressSpace& space, const FillRequest& request) override {
    absl::StatusOr<std::unique_ptr<Job>> job = MakeFill(StateOf(space), request);
    if (!job.ok()) return job.status();
    return SubmitJob(space, *std::move(job));
  }

  absl::Status WriteFence(AddressSpace& space, std::atomic<uint64_t>* fence,
                          uint64_t value) override {
    Operation operation;
    operation.kind = Operation::Kind::kWriteFence;
    operation.space = StateOf(space);
    operation.fence = fence;
    operation.value = value;
    core_.engine.Submit(state_, std::move(operation));
    return absl::OkStatus();
  }

  absl::Status WaitFence(AddressSpace& space, const std::atomic<uint64_t>* fence,
                         uint64_t value) override {
    Operation operation;
    operation.kind = Operation::Kind::kWaitFence;
    operation.space = StateOf(space);
    operation.awaited = fence;
    operation.value = value;
    core_.engine.Submit(state_, std::move(operation));
    return absl::OkStatus();
  }

  absl::Status MemoryOps(AddressSpace& space, absl::Span<const MemoryOp> operations) override {
    for (const MemoryOp& memory : operations) {
      if (memory.bytes() == 0) continue;  // a barrier: a queue is in order anyway
      Operation operation;
      operation.kind = Operation::Kind::kMemory;
      operation.space = StateOf(space);
      operation.memory = memory;
      core_.engine.Submit(state_, std::move(operation));
    }
    return absl::OkStatus();
  }

  absl::Status Record(Marker& marker) override {
    Operation operation;
    operation.kind = Operation::Kind::kRecord;
    operation.owner = owner_.lock();
    operation.point = std::make_shared<Point>();
    static_cast<SoftMarker&>(marker).set_point(operation.point);
    core_.engine.Submit(state_, std::move(operation));
    return absl::OkStatus();
  }

  absl::Status Wait(Marker& marker) override {
    const auto& soft = static_cast<SoftMarker&>(marker);
    Operation operation;
    operation.owner = owner_.lock();
    operation.point = soft.point();
    if (operation.point == nullptr) return absl::OkStatus();
    if (&soft.core == &core_) {
      operation.kind = Operation::Kind::kWait;
    } else {
      // Every device has its own engine and its own virtual time. A wait for another device takes
      // no virtual time.
      operation.kind = Operation::Kind::kWaitFence;
      operation.awaited = &operation.point->reached;
      operation.value = 1;
    }
    core_.engine.Submit(state_, std::move(operation));
    return absl::OkStatus();
  }

  absl::Status LaunchGraph(AddressSpace& space, Graph& graph,
                           absl::Span<const uint64_t> values) override {
    return static_cast<SoftGraph&>(graph).Launch(state_, values);
  }

 private:
  absl::Status SubmitJob(AddressSpace& space, std::unique_ptr<Job> job) {
    if (job == nullptr) return absl::OkStatus();
    Operation operation;
    operation.kind = Operation::Kind::kJob;
    operation.space = StateOf(space);
    operation.job = std::move(job);
    core_.engine.Submit(state_, std::move(operation));
    return absl::OkStatus();
  }

  Core& core_;
  const SmRange sms_;
  // The engine holds the state, too, while the queue has work.
  const std::shared_ptr<QueueState> state_;
  // Of the session that uses the queue. A queue in the pool keeps no ended session's memory.
  std::weak_ptr<SpaceState> owner_;
};

class SoftPartition final : public Partition {
 public:
  // `urgent`: the partition is of the urgent time-slice group.
  SoftPartition(Core& core, SmRange sms, bool urgent = false)
      : core_(core), sms_(sms), urgent_(urgent) {}
  int first_sm() const override { return sms_.first; }
  int sm_count() const override { return sms_.count; }
  SmRange sms() const { return sms_; }
  // Priorities have no effect: all queued work makes progress.
  absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(int priority) override {
    return std::make_unique<SoftQueue>(core_, sms_, urgent_);
  }

 private:
  Core& core_;
  const SmRange sms_;
  const bool urgent_;
};

class SoftDevice final : public Device {
 public:
  SoftDevice(const SoftDeviceOptions& options, DeviceProperties properties,
             std::shared_ptr<MemoryFile> card)
      : core_(options, std::move(properties), std::move(card)),
        whole_(core_, {0, core_.properties.sm_count}),
        urgent_(core_, {0, core_.properties.sm_count}, /*urgent=*/true) {}

  absl::Status ShareCard() {
    const std::string& file = core_.options.memory_file;
    return file.empty() ? absl::OkStatus() : core_.processes.Join(file);
  }

  const DeviceProperties& properties() const override { return core_.properties; }
  Partition& whole() override { return whole_; }
  Partition* urgent() override {
    return core_.properties.preemption.available ? &urgent_ : nullptr;
  }
  void KeepOrdinary(bool keep) override { core_.ordinary.Keep(keep); }

  absl::StatusOr<std::unique_ptr<Partition>> CreatePartition(int first, int count) override {
    const int group = core_.properties.sm_group, sms = core_.properties.sm_count;
    const bool whole_groups = first % group == 0 && (count % group == 0 || first + count == sms);
    if (first < 0 || count < 1 || first >= sms || count > sms - first || !whole_groups) {
      return CudaError(kCudaErrorInvalidValue, absl::StrCat("a partition is made of groups of ",
                                                            group, " of the ", sms, " SMs"));
    }
    return std::make_unique<SoftPartition>(core_, SmRange{first, count});
  }

  absl::StatusOr<std::unique_ptr<Marker>> CreateMarker(bool timed) override {
    return std::make_unique<SoftMarker>(core_, timed);
  }

  absl::StatusOr<bool> Reached(Marker& marker) override {
    const std::shared_ptr<Point> point = static_cast<SoftMarker&>(marker).point();
    return point == nullptr || core_.engine.Reached(*point);
  }

  absl::StatusOr<float> ElapsedMilliseconds(Marker& start, Marker& end) override {
    const auto& first = static_cast<SoftMarker&>(start);
    const auto& last = static_cast<SoftMarker&>(end);
    const std::shared_ptr<Point> from = first.point(), to = last.point();
    if (!first.timed || !last.timed || from == nullptr || to == nullptr) {
      return absl::FailedPreconditionError("a marker is not recorded or does not measure time");
    }
    if (!core_.engine.Reached(*from) || !core_.engine.Reached(*to))
      return absl::UnavailableError("a marker is not reached yet");
    const std::optional<Picoseconds> began = core_.timeline.At(*from->time),
                                     ended = core_.timeline.At(*to->time);
    if (!began.has_value() || !ended.has_value())
      return absl::UnavailableError("a marker is not reached yet");
    return static_cast<float>((static_cast<double>(*ended) - static_cast<double>(*began)) * 1e-9);
  }

  absl::StatusOr<std::unique_ptr<AddressSpace>> CreateAddressSpace(DeviceAddress base,
                                                                   uint64_t size) override {
    absl::StatusOr<std::shared_ptr<SpaceState>> state =
        SpaceState::Create(base, size, core_.budget);
    if (!state.ok()) return state.status();
    return std::make_unique<SoftAddressSpace>(
        *std::move(state), core_.options.kernels_outlive_sessions, [this] { core_.engine.Wake(); });
  }

  absl::StatusOr<std::shared_ptr<PhysicalMemory>> CreatePhysicalMemory(uint64_t bytes) override {
    return SoftPhysicalMemory::Create(core_.card, bytes, core_.budget);
  }

  absl::StatusOr<std::unique_ptr<Library>> LoadLibrary(AddressSpace& space,
                                                       absl::Span<const std::byte> image,
                                                       absl::Span<const JitOptionValue> options,
                                                       CompileLogs& logs,
                                                       const PlaceManaged& place) override {
    absl::StatusOr<std::unique_ptr<Library>> library = Load(space, image, place);
    if (!library.ok()) Explain("an image does not load: ", library.status(), logs);
    return library;
  }

  absl::StatusOr<std::string> Link(absl::Span<const LinkInputImage> inputs,
                                   absl::Span<const JitOptionValue> options,
                                   CompileLogs& logs) override {
    absl::StatusOr<std::string> linked = LinkImages(inputs, SmVersionOf(core_.properties));
    if (!linked.ok()) Explain("a link failed: ", linked.status(), logs);
    return linked;
  }

  absl::StatusOr<std::unique_ptr<Graph>> InstantiateGraph(AddressSpace& space, Partition& partition,
                                                          const GraphDescription& description,
                                                          GraphPlace* refused) override {
    return SoftGraph::Create(core_, static_cast<SoftPartition&>(partition).sms(), StateOf(space),
                             description, refused);
  }

  absl::StatusOr<uint64_t> CreateGraphCondition(AddressSpace& space, uint32_t default_value,
                                                bool assign_default, uint64_t sibling) override {
    Conditions& conditions = StateOf(space)->conditions();
    if (sibling != 0 && conditions.Find(sibling) == nullptr)
      return CudaError(kCudaErrorInvalidValue, "the conditional handle does not exist");
    return conditions.Create(default_value, assign_default);
  }
  void EndGraphCondition(AddressSpace& space, uint64_t id) override {
    StateOf(space)->conditions().End(id);
  }

  Memory memory() const override {
    return {core_.budget.total() - core_.budget.used(), core_.budget.total()};
  }

  // The software GPUs of a daemon are connected as if by NVLink.
  std::map<int, int> PeerAttributes(const Device&) const override {
    return {{CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0},
            {CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1},
            {CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 1}};
  }

  absl::StatusOr<Limit> SetLimit(AddressSpace& space, int limit, uint64_t value) override {
    const std::shared_ptr<SpaceState> state = StateOf(space);
    switch (limit) {
      case CU_LIMIT_STACK_SIZE:
        if (value > kLargestStack)
          return CudaError(kCudaErrorInvalidValue, "the stack is larger than 512 KiB");
        value = (value + 15) / 16 * 16;
        state->stack_bytes.store(value, std::memory_order_relaxed);
        break;
      case CU_LIMIT_PRINTF_FIFO_SIZE:  // the host's memory holds what kernels print
        break;
      case CU_LIMIT_MALLOC_HEAP_SIZE:
        if (!state->SetHeapBytes(value))
          return CudaError(kCudaErrorInvalidValue, "the heap is in use");
        break;
      case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:  // more may wait in any case
        break;
      case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        if (value > 128)
          return CudaError(kCudaErrorInvalidValue, "the granularity is larger than 128 bytes");
        break;
      case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        value = std::min<uint64_t>(
            value, AttributeOf(core_.properties, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE));
        break;
      default:
        return CudaError(kUnsupportedLimit, absl::StrCat("limit ", limit, " cannot be set"));
    }
    // Each session has limits of its own.
    return Limit{value, value};
  }

  absl::Status health() const override { return absl::OkStatus(); }
  ImageDevice* images() override { return &images_; }
  ManagedMemory* managed_memory() override { return core_.options.managed_memory.get(); }
  TensorMapEncoder* tensor_maps() override {
    const bool supported =
        AttributeOf(core_.properties, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED) != 0;
    return supported ? &tensor_maps_ : nullptr;
  }

 private:
  absl::StatusOr<std::unique_ptr<Library>> Load(AddressSpace& space,
                                                absl::Span<const std::byte> image,
                                                const PlaceManaged& place) {
    const uint32_t sm = SmVersionOf(core_.properties);
    absl::StatusOr<std::vector<std::string>> texts = PtxOfImage(image, sm);
    if (!texts.ok()) return texts.status();
    absl::StatusOr<std::unique_ptr<ptx::Module>> module = CompilePtx(*texts, sm);
    if (!module.ok()) return module.status();
    absl::StatusOr<std::shared_ptr<LoadedModule>> loaded =
        LoadedModule::Create(StateOf(space), *std::move(module), RegistersOfImage(image, sm),
                             space.shared_output(), place);
    if (!loaded.ok()) return loaded.status();
    return std::make_unique<SoftLibrary>(core_.properties, *std::move(loaded));
  }

  void Explain(std::string_view what, const absl::Status& status, CompileLogs& logs) {
    const std::string message(status.message());
    core_.options.log(std::string(what) + message);
    logs.error = message.substr(0, logs.error_limit);
  }

  Core core_;
  SoftPartition whole_, urgent_;
  SoftImages images_{core_.properties, core_.budget};
  SoftTensorMaps tensor_maps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateSoftDevice(const SoftDeviceOptions& options) {
  absl::StatusOr<DeviceProperties> properties = MakeProperties(options);
  if (!properties.ok()) return properties.status();
  SoftDeviceOptions filled = options;
  if (filled.worker_threads <= 0)
    filled.worker_threads = std::max(1u, std::thread::hardware_concurrency());
  if (filled.quantum == 0) filled.quantum = 1;
  if (!filled.log) {
    filled.log = [](std::string_view line) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    };
  }
  absl::StatusOr<std::shared_ptr<MemoryFile>> card = MemoryFile::Create(0);
  if (!card.ok()) return card.status();
  auto device = std::make_unique<SoftDevice>(filled, *std::move(properties), *std::move(card));
  if (const absl::Status shared = device->ShareCard(); !shared.ok()) return shared;
  return device;
}

}  // namespace detshare::soft
