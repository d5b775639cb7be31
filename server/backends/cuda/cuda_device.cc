#include "server/backends/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/context_limit.h"
#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_graph.h"
#include "server/backends/cuda/cuda_library.h"
#include "server/backends/cuda/cuda_physical_memory.h"
#include "server/backends/cuda/cuda_properties.h"
#include "server/backends/cuda/other_sharing.h"
#include "server/backends/cuda/preemption.h"
#include "server/backends/cuda/printing_launches.h"
#include "server/backends/cuda/time_slices.h"

namespace detshare::cuda {
namespace {

constexpr uint64_t kLargestStack = 512 << 10;
constexpr uint64_t kLargestFetch = 128;
constexpr uint64_t kStackShare = 16;  // stacks get at most this part of the device's memory

std::string PciAddress(const DeviceProperties& properties) {
  const auto& attributes = properties.attributes;
  return absl::StrFormat("%04x:%02x:%02x.0", attributes.at(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                         attributes.at(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                         attributes.at(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
}

DaemonOnGpu DaemonOf(const CudaOptions& options, int ordinal, const DeviceProperties& gpu) {
  DaemonOnGpu daemon;
  daemon.device = static_cast<size_t>(ordinal);
  if (options.page != nullptr && daemon.device < EnginePage::kMaxDevices) {
    daemon.slice_words = &options.page->slices[daemon.device];
    daemon.peers = options.peers;
  }
  daemon.number = options.daemon_number;
  daemon.stand_in_groups = options.stand_in_groups;
  daemon.node = DeviceNode(PciAddress(gpu));
  daemon.only_proof = options.only_describes;
  if (!options.proof_directory.empty()) {
    daemon.proof =
        absl::StrCat(options.proof_directory, "/preemption-",
                     absl::BytesToHexString(absl::string_view(
                         reinterpret_cast<const char*>(gpu.uuid.data()), gpu.uuid.size())));
  }
  return daemon;
}

// Gives the new urgent group the limits that sessions have raised in the ordinary group. SetLimit()
// raises that of the ordinary group first and looks for the urgent one then, so no limit is missed.
void CopyLimits(CudaContext& gpu, uint64_t memory) {
  CudaGroup& urgent = *gpu.urgent();
  for (const CUlimit limit :
       {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE,
        CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
        CU_LIMIT_MAX_L2_FETCH_GRANULARITY, CU_LIMIT_PERSISTING_L2_CACHE_SIZE}) {
    gpu.Enter();
    size_t wanted = 0;
    if (gpu.api.cuCtxGetLimit(&wanted, limit) != CUDA_SUCCESS) continue;
    const auto raise = [&] {
      uint64_t in_force = 0;
      gpu.ApartFromGraphs([&] {
           RaiseLimit(gpu.api, limit, wanted, memory, &in_force);
           return absl::OkStatus();
         })
          .IgnoreError();
    };
    // The group has no work, so only a SetLimit() can be in the way.
    while (!gpu.lost() && !urgent.idle.TryRun(raise, /*in_spite_of_work=*/true))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The size of an address space that exists only while the device is set up.
constexpr uint64_t kTrialBytes = 16 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(
    std::shared_ptr<const DriverApi> api, std::shared_ptr<HostRegistry> registry, int ordinal,
    const CudaOptions& options) {
  const auto failed = [&](CUresult result, const char* call) {
    const char* name = nullptr;
    api->cuGetErrorName(result, &name);
    return CudaError(result, absl::StrCat(call, ": ", name == nullptr ? "unknown error" : name));
  };
  CUdevice device = 0;
  if (CUresult result = api->cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS) {
    return failed(result, "cuDeviceGet");
  }
  char device_name[256] = {};
  if (api->cuDeviceGetName(device_name, sizeof(device_name) - 1, device) == CUDA_SUCCESS)
    DETSHARE_RETURN_IF_ERROR(RefuseMig(ordinal, device_name));
  // With this flag waiting threads sleep. A launch never waits, so this does not delay it. The call
  // fails if the context is active already; the context then keeps its flags.
  api->cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST);
  CUcontext primary = nullptr;
  std::vector<ChannelGroup> channel_groups;
  {
    const ChannelGroupRecorder recorder(options.stand_in_groups);
    const CUresult result = api->cuDevicePrimaryCtxRetain(&primary, device);
    if (result == CUDA_ERROR_DEVICE_UNAVAILABLE) {
      return failed(result,
                    "another process has the GPU for itself (nvidia-smi -q -d COMPUTE shows the "
                    "compute mode, nvidia-smi -c DEFAULT changes it): cuDevicePrimaryCtxRetain");
    }
    if (result != CUDA_SUCCESS) return failed(result, "cuDevicePrimaryCtxRetain");
    channel_groups = recorder.compute_groups();
  }

  std::unique_ptr<CudaDevice> self(
      new CudaDevice(api, std::move(registry), options.stand_in_groups));
  self->context_ = std::make_unique<CudaContext>(*self->api_, device, primary);
  self->reclaimer_ = std::make_unique<DeferredReclaimer>(*self->context_);
  self->images_ = std::make_unique<CudaImages>(*self->context_, *self->reclaimer_);
  DETSHARE_ASSIGN_OR_RETURN(self->properties_, ReadProperties(*self->context_));
  if (self->properties_.attributes[CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED] != 0)
    self->tensor_maps_ = std::make_unique<CudaTensorMaps>(*self->context_);
  DETSHARE_RETURN_IF_ERROR(self->Split(options.sm_group));
  self->whole_ = std::make_unique<CudaPartition>(self->context_->ordinary, *self->reclaimer_,
                                                 nullptr, 0, self->properties_.sm_count);

  DETSHARE_ASSIGN_OR_RETURN(bool keeps, self->MemoryKeepsContents());
  if (keeps) {
    DETSHARE_RETURN_IF_ERROR(self->context_->Check(
        self->context_->api.cuStreamCreateWithPriority(&self->zeroing_stream_,
                                                       CU_STREAM_NON_BLOCKING,
                                                       self->properties_.least_stream_priority),
        "cuStreamCreateWithPriority"));
  }
  if (kPhysicalGranule % self->properties_.memory_granularity == 0) {
    DETSHARE_ASSIGN_OR_RETURN(self->leading_,
                              CudaPhysicalMemory::Create(*self->context_, kPhysicalGranule));
    // The first space zeroes it, and no other space waits for that.
    if (keeps) DETSHARE_RETURN_IF_ERROR(self->CreateSpaceAnywhere(kTrialBytes).status());
  }
  self->properties_.preemption =
      options.preemption
          ? SetUpPreemption(*self->context_, channel_groups,
                            DaemonOf(options, ordinal, self->properties_), &self->holds_)
          : Preemption::SwitchedOff();
  if (self->properties_.preemption.available && !options.only_describes) {
    if (self->context_->urgent() != nullptr) self->PublishUrgent();
    self->context_->open_urgent = [device = self.get()] { return device->OpenUrgent(); };
    static const RealClock clock;
    CudaContext* const gpu = self->context_.get();
    self->group_clock_ = std::make_unique<GroupClock>(GroupClock::Parts{
        *self->api_, clock,
        [gpu](bool urgent) { (urgent ? *gpu->urgent() : gpu->ordinary).Enter(); },
        [gpu](CUresult result, const char* call) { return gpu->Check(result, call); }});
  }
  self->registry_->AddGpu(*self->context_);
  return self;
}

CUdevice DriverPlace(ManagedPlace place) {
  return place != nullptr ? static_cast<const CudaDevice*>(place)->context().device : CU_DEVICE_CPU;
}

void CudaDevice::PublishUrgent() {
  own_urgent_ = std::make_unique<CudaPartition>(*context_->urgent(), *reclaimer_, nullptr, 0,
                                                properties_.sm_count);
  urgent_.store(own_urgent_.get(), std::memory_order_release);
}

absl::Status CudaDevice::OpenUrgent() {
  if (!properties_.preemption.available || urgent() != nullptr) return absl::OkStatus();
  const MutexLock lock(&opening_);
  if (urgent() != nullptr) return absl::OkStatus();
  DETSHARE_RETURN_IF_ERROR(OpenUrgentGroup(*context_, stand_in_groups_, &holds_));
  CopyLimits(*context_, properties_.total_memory);
  PublishUrgent();
  return absl::OkStatus();
}

void CudaDevice::KeepOrdinary(bool keep) {
  if (context_->ordinary.slice != nullptr) context_->ordinary.slice->Keep(keep);
}

void CudaDevice::ShareOrdinary(bool share) {
  if (context_->ordinary.slice != nullptr) context_->ordinary.slice->Share(share);
}

void CudaDevice::ShareWith(std::function<bool()> others_work) {
  if (context_->ordinary.slice != nullptr)
    context_->ordinary.slice->ShareWith(std::move(others_work));
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  registry_->RemoveGpu(*context_);
  whole_.reset();
  own_urgent_.reset();
  holds_.reset();
  group_clock_.reset();
  reclaimer_.reset();
  images_.reset();
  leading_.reset();
  context_->Enter();
  if (zeroing_stream_ != nullptr) api_->cuStreamDestroy(zeroing_stream_);
  const auto release = [&] {
    if (context_->urgent() != nullptr) api_->cuCtxDestroy(context_->urgent()->context);
    api_->cuDevicePrimaryCtxRelease(context_->device);
  };
  context_->graph_gate != nullptr ? context_->graph_gate->Change(release) : release();
}

absl::Status CudaDevice::Split(int sm_group) {
  context_->Enter();
  CUdevResource all{};
  absl::Status status =
      context_->Check(api_->cuDeviceGetDevResource(context_->device, &all, CU_DEV_RESOURCE_TYPE_SM),
                      "cuDeviceGetDevResource");
  if (!status.ok()) return status;
  const unsigned flags = sm_group < 8 ? CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING : 0;
  unsigned count = static_cast<unsigned>(properties_.sm_count / std::max(1, sm_group));
  groups_.resize(count + 1);
  CUdevResource left{};
  status =
      context_->Check(api_->cuDevSmResourceSplitByCount(groups_.data(), &count, &all, &left, flags,
                                                        static_cast<unsigned>(sm_group)),
                      "cuDevSmResourceSplitByCount");
  if (!status.ok() || count == 0) {
    // This GPU has no partitions: use it as a whole.
    groups_.clear();
    properties_.sm_group = properties_.sm_count;
    return context_->health();
  }
  groups_.resize(count);
  // The driver may round the size of the groups up.
  properties_.sm_group = static_cast<int>(groups_[0].sm.smCount);
  if (left.type == CU_DEV_RESOURCE_TYPE_SM && left.sm.smCount > 0) groups_.push_back(left);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<AddressSpace>> CudaDevice::CreateSpaceAnywhere(uint64_t bytes) {
  CUdeviceptr base = 0;
  DETSHARE_RETURN_IF_ERROR(
      context_->Check(api_->cuMemAddressReserve(&base, bytes, 0, 0, 0), "cuMemAddressReserve"));
  api_->cuMemAddressFree(base, bytes);
  return CreateAddressSpace(base, bytes);
}

absl::StatusOr<bool> CudaDevice::MemoryKeepsContents() {
  bool keeps = false;
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<AddressSpace> space, CreateSpaceAnywhere(kTrialBytes));
  const DeviceAddress base = space->base();
  absl::StatusOr<std::unique_ptr<Queue>> queue = whole_->CreateQueue(0);
  if (!queue.ok()) return queue.status();
  CUstream stream = nullptr;
  absl::Status status =
      context_->Check(api_->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
                      "cuStreamCreateWithPriority");
  std::vector<uint64_t> contents(kTrialBytes / sizeof(uint64_t));
  for (int round = 0; round < 2 && status.ok(); ++round) {
    status = space->Map(base, kTrialBytes);
    if (!status.ok()) break;
    status = context_->Check(api_->cuMemcpyDtoHAsync(contents.data(), base, kTrialBytes, stream),
                             "cuMemcpyDtoHAsync");
    if (round == 0) {
      status.Update(context_->Check(api_->cuMemsetD8Async(base, 0xA5, kTrialBytes, stream),
                                    "cuMemsetD8Async"));
    }
    status.Update(context_->Check(api_->cuStreamSynchronize(stream), "cuStreamSynchronize"));
    keeps |= std::any_of(contents.begin(), contents.end(), [](uint64_t word) { return word != 0; });
    status.Update(space->Unmap(base, kTrialBytes));
  }
  if (stream != nullptr) api_->cuStreamDestroy(stream);
  if (!status.ok()) return status;
  return keeps;
}

absl::StatusOr<std::unique_ptr<Partition>> CudaDevice::CreatePartition(int first, int count) {
  const int group = properties_.sm_group;
  const int groups = static_cast<int>(groups_.size());
  const int end = first + count;
  if (first < 0 || count <= 0 || end > properties_.sm_count || first % group != 0 ||
      first / group >= groups || (end % group != 0 && end != properties_.sm_count)) {
    return CudaError(kCudaErrorInvalidValue,
                     absl::StrCat("SMs ", first, " to ", end, " are not whole groups of ", group));
  }
  // The last group consists of all SMs that the driver left over.
  const int last = end == properties_.sm_count ? groups : end / group;
  if (last > groups - 1 && end != properties_.sm_count) {
    return CudaError(kCudaErrorInvalidValue, "a partition has all of the last SMs or none");
  }
  context_->Enter();
  CUdevResourceDesc description = nullptr;
  absl::Status status =
      context_->Check(api_->cuDevResourceGenerateDesc(&description, &groups_[first / group],
                                                      static_cast<unsigned>(last - first / group)),
                      "cuDevResourceGenerateDesc");
  if (!status.ok()) return status;
  CUgreenCtx green = nullptr;
  const OrdinarySlice::Call own(context_->ordinary.slice.get());
  status = context_->Check(
      api_->cuGreenCtxCreate(&green, description, context_->device, CU_GREEN_CTX_DEFAULT_STREAM),
      "cuGreenCtxCreate");
  if (!status.ok()) return status;
  return std::make_unique<CudaPartition>(context_->ordinary, *reclaimer_,
                                         std::make_shared<GreenContext>(*context_, green), first,
                                         count);
}

absl::StatusOr<std::unique_ptr<GroupHold>> CudaDevice::CreateHold() {
  if (holds_ == nullptr) return nullptr;
  return holds_->CreateHold();
}

absl::StatusOr<std::unique_ptr<Marker>> CudaDevice::CreateMarker(bool timed) {
  return CudaMarker::Create(*context_, timed);
}

absl::StatusOr<bool> CudaDevice::Reached(Marker& marker) {
  context_->Enter();
  const CUresult result = api_->cuEventQuery(static_cast<CudaMarker&>(marker).event());
  if (result == CUDA_ERROR_NOT_READY) return false;
  DETSHARE_RETURN_IF_ERROR(context_->Check(result, "cuEventQuery"));
  return true;
}

absl::StatusOr<float> CudaDevice::ElapsedMilliseconds(Marker& start, Marker& end) {
  const GroupClock::Recorded from = static_cast<CudaMarker&>(start).recorded();
  const GroupClock::Recorded to = static_cast<CudaMarker&>(end).recorded();
  if (from.urgent != to.urgent) return group_clock_->Milliseconds(from, to);
  (from.urgent ? *context_->urgent() : context_->ordinary).Enter();
  float milliseconds = 0;
  DETSHARE_RETURN_IF_ERROR(context_->Check(
      api_->cuEventElapsedTime(&milliseconds, from.event, to.event), "cuEventElapsedTime"));
  return milliseconds;
}

absl::StatusOr<std::unique_ptr<AddressSpace>> CudaDevice::CreateAddressSpace(DeviceAddress base,
                                                                             uint64_t size) {
  const CudaAddressSpace::Parts parts{*context_,       *reclaimer_,
                                      *registry_,      properties_.memory_granularity,
                                      zeroing_stream_, leading_};
  return CudaAddressSpace::Create(parts, base, size);
}

absl::StatusOr<std::shared_ptr<PhysicalMemory>> CudaDevice::CreatePhysicalMemory(uint64_t bytes) {
  if (bytes == 0 || bytes % kPhysicalGranule != 0 || bytes % properties_.memory_granularity != 0) {
    return CudaError(kCudaErrorInvalidValue, "physical memory consists of whole granules");
  }
  return CudaPhysicalMemory::Create(*context_, bytes);
}

absl::StatusOr<std::unique_ptr<Library>> CudaDevice::LoadLibrary(
    AddressSpace& space, absl::Span<const std::byte> image,
    absl::Span<const JitOptionValue> options, CompileLogs& logs, const PlaceManaged& place) {
  const int sm = properties_.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] * 10 +
                 properties_.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
  return CudaLibrary::Load(*context_, *reclaimer_, static_cast<CudaAddressSpace&>(space), image,
                           options, sm, logs, place);
}

void CudaDevice::FlushOutput(AddressSpace& space) {
  PrintingLaunches::Get().Flush(space.shared_output());
}

absl::StatusOr<std::string> CudaDevice::Link(absl::Span<const LinkInputImage> inputs,
                                             absl::Span<const JitOptionValue> options,
                                             CompileLogs& logs) {
  return LinkImages(*context_, inputs, options, logs);
}

absl::StatusOr<std::unique_ptr<Graph>> CudaDevice::InstantiateGraph(
    AddressSpace& space, Partition& partition, const GraphDescription& description,
    GraphPlace* refused) {
  *refused = {};
  const auto& own = static_cast<CudaPartition&>(partition);
  CudaGraph::Place place{&own.group(), own.group().context, own.green(), own.sm_count()};
  if (place.green != nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(place.context, place.green->AsContext());
  }
  return CudaGraph::Create(*context_, *reclaimer_, static_cast<CudaAddressSpace&>(space), place,
                           description, refused);
}

absl::StatusOr<uint64_t> CudaDevice::CreateGraphCondition(AddressSpace& space,
                                                          uint32_t default_value,
                                                          bool assign_default, uint64_t sibling) {
  // A handle belongs to one context.
  space.BindToGroup();
  return static_cast<CudaAddressSpace&>(space).conditional_homes().CreateHandle(
      context_->GroupOf(space), *reclaimer_, sibling, default_value, assign_default);
}

void CudaDevice::EndGraphCondition(AddressSpace& space, uint64_t id) {
  static_cast<CudaAddressSpace&>(space).conditional_homes().EndHandle(id);
}

Device::Memory CudaDevice::memory() const {
  context_->Enter();
  size_t free = 0, total = 0;
  if (api_->cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return {0, properties_.total_memory};
  return {free, total};
}

std::map<int, int> CudaDevice::PeerAttributes(const Device& other) const {
  const CUdevice peer = static_cast<const CudaDevice&>(other).context_->device;
  std::map<int, int> attributes;
  for (int attribute = CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
       attribute <= CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED; ++attribute) {
    int value = 0;
    if (api_->cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(attribute),
                                      context_->device, peer) == CUDA_SUCCESS) {
      attributes[attribute] = value;
    }
  }
  int access = 0;
  if (api_->cuDeviceCanAccessPeer(&access, context_->device, peer) != CUDA_SUCCESS) access = 0;
  attributes[CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED] = access;
  return attributes;
}

absl::StatusOr<Device::Limit> CudaDevice::SetLimit(AddressSpace& space, int limit, uint64_t value) {
  const auto name = static_cast<CUlimit>(limit);
  const auto attribute = [&](CUdevice_attribute which) {
    return static_cast<uint64_t>(properties_.attributes[which]);
  };
  // The value that a session reads depends only on the value that it set.
  switch (name) {
    case CU_LIMIT_STACK_SIZE: {
      // Each resident thread has a stack of its own, for all sessions together.
      const uint64_t threads = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                               attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
      if (value > kLargestStack) return CudaError(kCudaErrorInvalidValue, "the stack is too large");
      value = (value + 15) / 16 * 16;
      if (value * threads > properties_.total_memory / kStackShare)
        return CudaError(kCudaErrorOutOfMemory,
                         "the stacks would take too much of the device's memory");
      break;
    }
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      if (value > kLargestFetch)
        return CudaError(kCudaErrorInvalidValue, "the granularity is larger than 128 bytes");
      break;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE: {
      // The driver sets aside whole sixteenths of the cache.
      const uint64_t unit = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) / 16;
      if (unit != 0 && value % unit != 0 && value < UINT64_MAX - unit)
        value = (value / unit + 1) * unit;
      value = std::min(value, attribute(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE));
      break;
    }
    default:
      break;
  }
  Limit set{value, UINT64_MAX};
  for (const bool urgent : {false, true}) {
    // A group that is opened after this look copies the limit of the ordinary one (CopyLimits).
    CudaGroup* const group = urgent ? context_->urgent() : &context_->ordinary;
    if (group == nullptr) continue;
    group->Enter();
    size_t now = 0;
    const auto read = [&] {
      return context_->Check(api_->cuCtxGetLimit(&now, name), "cuCtxGetLimit");
    };
    DETSHARE_RETURN_IF_ERROR(read());
    uint64_t in_force = now;
    if (value > now) {
      // May allocate the context's memory for stacks, heap or printf again, which drains the
      // context. Another session may raise the limit before its turn comes.
      DETSHARE_RETURN_IF_ERROR(
          group->idle.Run(static_cast<CudaAddressSpace&>(space), [&]() -> absl::Status {
            group->Enter();
            DETSHARE_RETURN_IF_ERROR(read());
            in_force = now;
            if (value <= now) return absl::OkStatus();
            return context_->ApartFromGraphs([&] {
              return context_->Check(
                  RaiseLimit(*api_, name, value, properties_.total_memory, &in_force),
                  "cuCtxSetLimit");
            });
          }));
    }
    set.in_force = std::min(set.in_force, in_force);
  }
  return set;
}

absl::Status CudaDevice::ResetPersistingCache() {
  context_->Enter();
  return context_->Check(api_->cuCtxResetPersistingL2Cache(), "cuCtxResetPersistingL2Cache");
}

}  // namespace detshare::cuda
