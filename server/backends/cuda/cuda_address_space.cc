#include "server/backends/cuda/cuda_address_space.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

#include "coroutine_runtime/status_cuda.h"

namespace detshare::cuda {
namespace {

// As CU_STREAM_WAIT_VALUE_GEQ compares: a fence that was forced to the largest value does not
// release the GPU.
bool Reached(const std::atomic<uint64_t>* fence, uint64_t value) {
  return static_cast<int64_t>(fence->load(std::memory_order_relaxed) - value) >= 0;
}

CUmemLocation LocationOf(const CudaContext& context) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = context.device;
  return location;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaAddressSpace>> CudaAddressSpace::Create(const Parts& parts,
                                                                           DeviceAddress base,
                                                                           uint64_t size) {
  CudaContext& context = parts.context;
  context.Enter();
  CUdeviceptr reserved = 0;
  absl::Status status = context.Check(context.api.cuMemAddressReserve(&reserved, size, 0, base, 0),
                                      "cuMemAddressReserve");
  if (!status.ok()) return status;
  if (reserved != base) {
    context.api.cuMemAddressFree(reserved, size);
    return CudaError(kCudaErrorOutOfMemory, "the session's range of addresses is taken");
  }
  std::unique_ptr<CudaAddressSpace> space(new CudaAddressSpace(parts, base, size));
  context.AddSpace(space.get());
  return space;
}

CudaAddressSpace::~CudaAddressSpace() {
  CudaContext& context = parts_.context;
  context.Enter();
  Abandon();
  while (!context.lost() && memory_waits_.Pending()) {
    ReleaseMemoryWaits();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  for (const std::shared_ptr<StreamState>& stream : streams_) {
    // A queue that serves somebody else by now was given back idle.
    if (stream->space.load() != this) continue;
    context.Check(context.api.cuStreamSynchronize(stream->stream), "cuStreamSynchronize")
        .IgnoreError();
    stream->space.store(nullptr);
  }
  for (const auto& [address, mapping] : mapped_) {
    context.api.cuMemUnmap(address, mapping.bytes);
    context.api.cuMemRelease(mapping.handle);
  }
  for (const auto& [address, range] : host_) {
    parts_.registry.Unregister(context, parts_.caretaker, reinterpret_cast<void*>(address),
                               range.bytes);
  }
  context.api.cuMemAddressFree(base_, size_);
  context.RemoveSpace(this);
}

absl::Status CudaAddressSpace::Map(DeviceAddress address, uint64_t bytes) {
  CudaContext& context = parts_.context;
  if (bytes == 0 || (address | bytes) % parts_.granularity != 0 || address < base_ ||
      bytes > size_ || address - base_ > size_ - bytes) {
    return CudaError(kCudaErrorInvalidValue, "not a range of whole granules of the session");
  }
  context.Enter();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = LocationOf(context);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  absl::Status status =
      context.Check(context.api.cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
  if (!status.ok()) return status;
  status = Back(address, bytes, handle);
  if (!status.ok()) {
    context.api.cuMemRelease(handle);
    return status;
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  mapped_[address] = Mapping{bytes, handle};
  return absl::OkStatus();
}

absl::Status CudaAddressSpace::Back(DeviceAddress address, uint64_t bytes,
                                    CUmemGenericAllocationHandle handle) {
  CudaContext& context = parts_.context;
  absl::Status status =
      context.Check(context.api.cuMemMap(address, bytes, 0, handle, 0), "cuMemMap");
  if (!status.ok()) return status;
  CUmemAccessDesc access{};
  access.location = LocationOf(context);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  status = context.Check(context.api.cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
  if (status.ok() && parts_.zeroing_stream != nullptr) {
    status =
        context.Check(context.api.cuMemsetD32Async(address, 0, bytes / 4, parts_.zeroing_stream),
                      "cuMemsetD32Async");
    if (status.ok()) {
      status = context.Check(context.api.cuStreamSynchronize(parts_.zeroing_stream),
                             "cuStreamSynchronize");
    }
  }
  if (!status.ok()) context.api.cuMemUnmap(address, bytes);
  return status;
}

absl::Status CudaAddressSpace::Unmap(DeviceAddress address, uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    const auto found = mapped_.find(address);
    if (found == mapped_.end() || found->second.bytes != bytes) {
      return CudaError(kCudaErrorInvalidValue, "not what one Map made");
    }
    handle = found->second.handle;
    mapped_.erase(found);
  }
  CudaContext& context = parts_.context;
  context.Enter();
  absl::Status status = context.Check(context.api.cuMemUnmap(address, bytes), "cuMemUnmap");
  status.Update(context.Check(context.api.cuMemRelease(handle), "cuMemRelease"));
  return status;
}

absl::Status CudaAddressSpace::RegisterHost(void* memory, uint64_t bytes) {
  const auto address = reinterpret_cast<DeviceAddress>(memory);
  if (bytes == 0 || address + bytes < address ||
      (address < base_ + size_ && address + bytes > base_)) {
    return CudaError(kCudaErrorInvalidValue, "not a range of host memory");
  }
  parts_.context.Enter();
  absl::Status status = parts_.registry.Register(parts_.context, memory, bytes);
  if (!status.ok()) return status;
  std::unique_lock<std::shared_mutex> lock(mutex_);
  host_[address] = Range{bytes};
  return absl::OkStatus();
}

absl::Status CudaAddressSpace::UnregisterHost(void* memory) {
  uint64_t bytes = 0;
  {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    const auto found = host_.find(reinterpret_cast<DeviceAddress>(memory));
    if (found == host_.end()) return CudaError(kCudaErrorInvalidValue, "memory is not registered");
    bytes = found->second.bytes;
    host_.erase(found);
  }
  parts_.registry.Unregister(parts_.context, parts_.caretaker, memory, bytes);
  return absl::OkStatus();
}

template <typename Ranges>
bool CudaAddressSpace::Covers(const Ranges& ranges, DeviceAddress address, uint64_t bytes) {
  auto range = ranges.upper_bound(address);
  if (range == ranges.begin()) return false;
  --range;
  for (; range != ranges.end() && range->first <= address; ++range) {
    const uint64_t offset = address - range->first;
    if (offset >= range->second.bytes) return false;
    const uint64_t covered = range->second.bytes - offset;
    if (covered >= bytes) return true;
    address += covered;
    bytes -= covered;
  }
  return false;
}

bool CudaAddressSpace::Contains(DeviceAddress address, uint64_t bytes) const {
  if (address + bytes < address) return false;
  bytes = std::max<uint64_t>(bytes, 1);
  std::shared_lock<std::shared_mutex> lock(mutex_);
  if (address - base_ < size_) return Covers(mapped_, address, bytes);
  return Covers(host_, address, bytes) || Covers(globals_, address, bytes);
}

uint64_t CudaAddressSpace::Reach(DeviceAddress address) const {
  if (address - base_ < size_) return UINT64_MAX;
  std::shared_lock<std::shared_mutex> lock(mutex_);
  auto range = host_.upper_bound(address);
  if (range == host_.begin()) return UINT64_MAX;
  --range;
  const uint64_t offset = address - range->first;
  if (offset >= range->second.bytes) return UINT64_MAX;
  return std::min(range->second.bytes - offset, kHostPieceBytes - offset % kHostPieceBytes);
}

void CudaAddressSpace::AddGlobal(DeviceAddress address, uint64_t bytes) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  globals_[address] = Range{bytes};
}

void CudaAddressSpace::RemoveGlobal(DeviceAddress address) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  globals_.erase(address);
}

void CudaAddressSpace::Use(const std::shared_ptr<StreamState>& stream) {
  stream->space.store(this);
  std::lock_guard<std::mutex> lock(work_mutex_);
  std::erase_if(streams_, [this, &stream](const std::shared_ptr<StreamState>& other) {
    return other == stream || other->space.load() != this;
  });
  streams_.push_back(stream);
}

bool CudaAddressSpace::NoteHostWait(const std::atomic<uint64_t>* fence, uint64_t value) {
  std::lock_guard<std::mutex> lock(work_mutex_);
  if (abandoned_) return false;
  std::erase_if(host_waits_, [](const auto& wait) { return Reached(wait.first, wait.second); });
  host_waits_.emplace_back(fence, value);
  return true;
}

bool CudaAddressSpace::abandoned() const {
  std::lock_guard<std::mutex> lock(work_mutex_);
  return abandoned_;
}

bool CudaAddressSpace::WaitsForTheHost() {
  if (memory_waits_.Pending()) return true;
  std::lock_guard<std::mutex> lock(work_mutex_);
  return std::any_of(host_waits_.begin(), host_waits_.end(),
                     [](const auto& wait) { return !Reached(wait.first, wait.second); });
}

void CudaAddressSpace::Abandon() {
  std::lock_guard<std::mutex> lock(work_mutex_);
  abandoned_ = true;
  // The fences lie in memory that the daemon maps writable; the streams go on as if the host had
  // answered.
  for (const auto& [fence, value] : host_waits_) {
    if (Reached(fence, value)) continue;
    const_cast<std::atomic<uint64_t>*>(fence)->store(value, std::memory_order_release);
  }
}

void CudaAddressSpace::ReleaseMemoryWaits() {
  if (!abandoned()) return;
  for (const MemoryOp& wait : memory_waits_.OneOfEachStream()) {
    // A wait that cannot be over is refused before it comes here.
    const uint64_t word = wait.Satisfying().value_or(0);
    const uint64_t bytes = static_cast<uint64_t>(wait.bytes());
    std::shared_lock<std::shared_mutex> lock(mutex_);  // what is mapped stays so meanwhile
    if (Covers(host_, wait.address, bytes)) {
      if (bytes == 4) {
        __atomic_store_n(reinterpret_cast<uint32_t*>(wait.address), static_cast<uint32_t>(word),
                         __ATOMIC_RELEASE);
      } else {
        __atomic_store_n(reinterpret_cast<uint64_t*>(wait.address), word, __ATOMIC_RELEASE);
      }
    } else if (Covers(mapped_, wait.address, bytes) || Covers(globals_, wait.address, bytes)) {
      parts_.context.WriteWord(wait.address, word, wait.bytes());
    }
  }
}

}  // namespace detshare::cuda
