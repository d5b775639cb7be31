#include "server/backends/cuda/cuda_address_space.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/printing_launches.h"

namespace detshare::cuda {
namespace {

// Compares as CU_STREAM_WAIT_VALUE_GEQ does: a fence that was forced to the largest value does not
// release the GPU.
bool Reached(const std::atomic<uint64_t>* fence, uint64_t value) {
  return static_cast<int64_t>(fence->load(std::memory_order_relaxed) - value) >= 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaAddressSpace>> CudaAddressSpace::Create(const Parts& parts,
                                                                           DeviceAddress base,
                                                                           uint64_t size) {
  CudaContext& context = parts.context;
  context.Enter();
  CUdeviceptr reserved = 0;
  DETSHARE_RETURN_IF_ERROR(context.Check(
      context.api.cuMemAddressReserve(&reserved, size, 0, base, 0), "cuMemAddressReserve"));
  if (reserved != base) {
    context.api.cuMemAddressFree(reserved, size);
    return CudaError(kCudaErrorOutOfMemory, "the session's range of addresses is taken");
  }
  const uint64_t leading = parts.leading != nullptr ? parts.leading->bytes() : 0;
  std::unique_ptr<CudaAddressSpace> space(
      new CudaAddressSpace(parts, base + leading, size - leading));
  context.AddSpace(space.get());
  if (leading != 0) {
    DETSHARE_RETURN_IF_ERROR(
        space->Place(base, leading, *parts.leading, CU_MEM_ACCESS_FLAGS_PROT_READ));
    space->leading_ = base;
  }
  return space;
}

CudaAddressSpace::~CudaAddressSpace() {
  CudaContext& context = parts_.context;
  Abandon();
  WaitForWork();
  PrintingLaunches::Get().End(shared_output());
  for (const auto& [address, mapping] : mapped_) {
    context.api.cuMemUnmap(address, mapping.bytes);
  }
  mapped_.clear();
  for (const auto& [address, range] : host_) {
    parts_.registry.Unregister(context, parts_.reclaimer, reinterpret_cast<void*>(address),
                               range.bytes);
  }
  if (leading_ != 0) context.api.cuMemUnmap(leading_, parts_.leading->bytes());
  const uint64_t leading = parts_.leading != nullptr ? parts_.leading->bytes() : 0;
  context.api.cuMemAddressFree(base_ - leading, size_ + leading);
  context.RemoveSpace(this);
}

void CudaAddressSpace::WaitForWork() {
  CudaContext& context = parts_.context;
  context.Enter();
  while (abandoned() && !context.lost() && memory_waits_.Pending()) {
    ReleaseMemoryWaits();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  std::vector<std::shared_ptr<StreamState>> streams;
  {
    MutexLock lock(&work_mutex_);
    streams.swap(streams_);
  }
  for (const std::shared_ptr<StreamState>& stream : streams) {
    // A queue that serves another space was idle when this space gave it back.
    if (stream->space.load() != this) continue;
    context.Check(context.api.cuStreamSynchronize(stream->stream), "cuStreamSynchronize")
        .IgnoreError();
    stream->space.store(nullptr);
  }
}

// Returns whether the range consists of whole granules inside the session's range. The driver
// refuses a range that is not free.
bool CudaAddressSpace::IsFreePlace(DeviceAddress address, uint64_t bytes) const {
  return bytes != 0 && (address | bytes) % parts_.granularity == 0 && address >= base_ &&
         bytes <= size_ && address - base_ <= size_ - bytes;
}

absl::Status CudaAddressSpace::Permit(DeviceAddress address, uint64_t bytes,
                                      CUmemAccess_flags flags) {
  CudaContext& context = parts_.context;
  CUmemAccessDesc access{};
  access.location = LocationOf(context);
  access.flags = flags;
  return context.Check(context.api.cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
}

absl::Status CudaAddressSpace::Zero(DeviceAddress address, uint64_t bytes) {
  CudaContext& context = parts_.context;
  DETSHARE_RETURN_IF_ERROR(
      context.Check(context.api.cuMemsetD32Async(address, 0, bytes / 4, parts_.zeroing_stream),
                    "cuMemsetD32Async"));
  return context.Check(context.api.cuStreamSynchronize(parts_.zeroing_stream),
                       "cuStreamSynchronize");
}

absl::Status CudaAddressSpace::Place(DeviceAddress address, uint64_t bytes,
                                     CudaPhysicalMemory& memory, CUmemAccess_flags flags) {
  CudaContext& context = parts_.context;
  context.Enter();
  absl::Status status =
      context.Check(context.api.cuMemMap(address, bytes, 0, memory.handle(), 0), "cuMemMap");
  if (!status.ok()) return status;
  CUmemAccess_flags now = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  // Zeroes the memory at its first mapping, before any session can read it.
  if (parts_.zeroing_stream != nullptr && memory.TakeFirstUse()) {
    now = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    status = Permit(address, bytes, now);
    if (status.ok()) status = Zero(address, bytes);
  }
  if (status.ok() && flags != now) status = Permit(address, bytes, flags);
  if (!status.ok()) context.api.cuMemUnmap(address, bytes);
  return status;
}

absl::Status CudaAddressSpace::Map(DeviceAddress address, uint64_t bytes) {
  if (!IsFreePlace(address, bytes))
    return CudaError(kCudaErrorInvalidValue, "not a range of whole granules of the session");
  DETSHARE_ASSIGN_OR_RETURN(std::shared_ptr<CudaPhysicalMemory> memory,
                            CudaPhysicalMemory::Create(parts_.context, bytes));
  DETSHARE_RETURN_IF_ERROR(Place(address, bytes, *memory, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  WriterMutexLock lock(&mutex_);
  mapped_[address] = Mapping{bytes, std::move(memory), false};
  permitted_[address] = Range{bytes};
  return absl::OkStatus();
}

absl::Status CudaAddressSpace::Take(DeviceAddress address, uint64_t bytes, bool physical) {
  std::shared_ptr<CudaPhysicalMemory> memory;
  {
    WriterMutexLock lock(&mutex_);
    const auto found = mapped_.find(address);
    if (found == mapped_.end() || found->second.bytes != bytes ||
        found->second.physical != physical) {
      return CudaError(kCudaErrorInvalidValue, "not a range that one call has mapped");
    }
    memory = std::move(found->second.memory);
    mapped_.erase(found);
    permitted_.erase(address);
  }
  NoteRemoval();
  CudaContext& context = parts_.context;
  context.Enter();
  return context.Check(context.api.cuMemUnmap(address, bytes), "cuMemUnmap");
}

absl::Status CudaAddressSpace::Unmap(DeviceAddress address, uint64_t bytes) {
  return Take(address, bytes, /*physical=*/false);
}

absl::Status CudaAddressSpace::MapPhysical(DeviceAddress address, uint64_t bytes,
                                           std::shared_ptr<PhysicalMemory> memory) {
  auto physical = std::static_pointer_cast<CudaPhysicalMemory>(std::move(memory));
  if (!IsFreePlace(address, bytes) || bytes > physical->bytes())
    return CudaError(kCudaErrorInvalidValue, "not a range of whole granules of the session");
  DETSHARE_RETURN_IF_ERROR(Place(address, bytes, *physical, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  WriterMutexLock lock(&mutex_);
  mapped_[address] = Mapping{bytes, std::move(physical), true};
  return absl::OkStatus();
}

absl::Status CudaAddressSpace::UnmapPhysical(DeviceAddress address, uint64_t bytes) {
  return Take(address, bytes, /*physical=*/true);
}

absl::Status CudaAddressSpace::SetAccess(DeviceAddress address, uint64_t bytes,
                                         MemoryAccess access) {
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  if (access == MemoryAccess::kRead) flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  if (access == MemoryAccess::kReadWrite) flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  {
    WriterMutexLock lock(&mutex_);
    if (address - base_ < size_) {
      const auto found = mapped_.find(address);
      if (found == mapped_.end() || found->second.bytes != bytes || !found->second.physical)
        return CudaError(kCudaErrorInvalidValue, "not a range that one call has mapped");
    }
    // Removes access here before the driver does. Below, access is added after the driver has given
    // it.
    if (access == MemoryAccess::kNone) permitted_.erase(address);
  }
  if (access != MemoryAccess::kReadWrite) NoteRemoval();
  parts_.context.Enter();
  absl::Status status = Permit(address, bytes, flags);
  if (!status.ok() || access == MemoryAccess::kNone) return status;
  WriterMutexLock lock(&mutex_);
  permitted_[address] = Range{bytes, access == MemoryAccess::kRead};
  return absl::OkStatus();
}

absl::StatusOr<PhysicalRange> CudaAddressSpace::Behind(DeviceAddress address) const {
  ReaderMutexLock lock(&mutex_);
  const auto next = mapped_.upper_bound(address);
  if (next == mapped_.begin() || address - std::prev(next)->first >= std::prev(next)->second.bytes)
    return CudaError(kCudaErrorInvalidValue, "nothing is mapped there");
  return PhysicalRange{std::prev(next)->second.memory, std::prev(next)->first};
}

absl::Status CudaAddressSpace::RegisterHost(void* memory, uint64_t bytes) {
  const auto address = reinterpret_cast<DeviceAddress>(memory);
  if (bytes == 0 || address + bytes < address ||
      (address < base_ + size_ && address + bytes > base_)) {
    return CudaError(kCudaErrorInvalidValue, "the range is not host memory");
  }
  parts_.context.Enter();
  DETSHARE_RETURN_IF_ERROR(
      parts_.registry.Register(*this, parts_.context, parts_.reclaimer, memory, bytes));
  WriterMutexLock lock(&mutex_);
  host_[address] = Range{bytes};
  return absl::OkStatus();
}

absl::Status CudaAddressSpace::UnregisterHost(void* memory) {
  uint64_t bytes = 0;
  {
    WriterMutexLock lock(&mutex_);
    const auto found = host_.find(reinterpret_cast<DeviceAddress>(memory));
    if (found == host_.end()) return CudaError(kCudaErrorInvalidValue, "memory is not registered");
    bytes = found->second.bytes;
    host_.erase(found);
  }
  NoteRemoval();
  parts_.registry.Unregister(parts_.context, parts_.reclaimer, memory, bytes);
  return absl::OkStatus();
}

absl::Status CudaAddressSpace::UseManaged(const ManagedMemory::Range& range) {
  AddGlobal(range.address, range.bytes);
  return absl::OkStatus();
}

template <typename Ranges>
bool CudaAddressSpace::Covers(const Ranges& ranges, DeviceAddress address, uint64_t bytes,
                              bool write) {
  auto range = ranges.upper_bound(address);
  if (range == ranges.begin()) return false;
  --range;
  for (; range != ranges.end() && range->first <= address; ++range) {
    const uint64_t offset = address - range->first;
    if (offset >= range->second.bytes || (write && range->second.read_only)) return false;
    const uint64_t covered = range->second.bytes - offset;
    if (covered >= bytes) return true;
    address += covered;
    bytes -= covered;
  }
  return false;
}

bool CudaAddressSpace::Contains(DeviceAddress address, uint64_t bytes, bool write) const {
  if (address + bytes < address) return false;
  bytes = std::max<uint64_t>(bytes, 1);
  ReaderMutexLock lock(&mutex_);
  return Covers(permitted_, address, bytes, write) || Covers(host_, address, bytes, write) ||
         Covers(globals_, address, bytes, write);
}

uint64_t CudaAddressSpace::Reach(DeviceAddress address) const {
  if (address - base_ < size_) return UINT64_MAX;
  ReaderMutexLock lock(&mutex_);
  auto range = host_.upper_bound(address);
  if (range == host_.begin()) return UINT64_MAX;
  --range;
  const uint64_t offset = address - range->first;
  if (offset >= range->second.bytes) return UINT64_MAX;
  return std::min(range->second.bytes - offset, kHostPieceBytes - offset % kHostPieceBytes);
}

void CudaAddressSpace::AddGlobal(DeviceAddress address, uint64_t bytes) {
  WriterMutexLock lock(&mutex_);
  globals_[address] = Range{bytes};
}

void CudaAddressSpace::RemoveGlobal(DeviceAddress address) {
  WriterMutexLock lock(&mutex_);
  globals_.erase(address);
  NoteRemoval();
}

void CudaAddressSpace::Use(const std::shared_ptr<StreamState>& stream) {
  stream->space.store(this);
  MutexLock lock(&work_mutex_);
  std::erase_if(streams_, [this, &stream](const std::shared_ptr<StreamState>& other) {
    return other == stream || other->space.load() != this;
  });
  streams_.push_back(stream);
}

bool CudaAddressSpace::NoteHostWait(const std::atomic<uint64_t>* fence, uint64_t value) {
  MutexLock lock(&work_mutex_);
  if (abandoned_) return false;
  std::erase_if(host_waits_, [](const auto& wait) { return Reached(wait.first, wait.second); });
  host_waits_.emplace_back(fence, value);
  return true;
}

bool CudaAddressSpace::Busy() const {
  std::vector<std::shared_ptr<StreamState>> streams;
  {
    MutexLock lock(&work_mutex_);
    streams = streams_;
  }
  parts_.context.Enter();
  for (const std::shared_ptr<StreamState>& stream : streams) {
    if (stream->space.load() != this || stream->submitted.load() == stream->completed.load())
      continue;
    const CUresult result = parts_.context.api.cuStreamQuery(stream->stream);
    if (result == CUDA_ERROR_NOT_READY) return true;
    parts_.context.Check(result, "cuStreamQuery").IgnoreError();
  }
  return false;
}

bool CudaAddressSpace::abandoned() const {
  MutexLock lock(&work_mutex_);
  return abandoned_;
}

absl::Status CudaAddressSpace::Ended() const {
  if (parts_.context.lost()) return parts_.context.health();
  if (abandoned()) return CudaError(kCudaErrorDeinitialized, "the session is over");
  return absl::OkStatus();
}

bool CudaAddressSpace::WaitsForTheHost() {
  if (memory_waits_.Pending()) return true;
  MutexLock lock(&work_mutex_);
  return std::any_of(host_waits_.begin(), host_waits_.end(),
                     [](const auto& wait) { return !Reached(wait.first, wait.second); });
}

void CudaAddressSpace::Abandon() {
  MutexLock lock(&work_mutex_);
  abandoned_ = true;
  // The fences lie in memory that the daemon maps writable. The streams go on as if the host had
  // stored the values.
  for (const auto& [fence, value] : host_waits_) {
    if (Reached(fence, value)) continue;
    const_cast<std::atomic<uint64_t>*>(fence)->store(value, std::memory_order_release);
  }
}

void CudaAddressSpace::ReleaseMemoryWaits() {
  if (!abandoned()) return;
  for (const MemoryOp& wait : memory_waits_.OneOfEachStream()) {
    // A wait that can never end is refused before it comes here.
    const uint64_t word = wait.Satisfying().value_or(0);
    const uint64_t bytes = static_cast<uint64_t>(wait.bytes());
    ReaderMutexLock lock(&mutex_);  // keeps the mappings
    if (Covers(host_, wait.address, bytes, /*write=*/true)) {
      if (bytes == 4) {
        __atomic_store_n(reinterpret_cast<uint32_t*>(wait.address), static_cast<uint32_t>(word),
                         __ATOMIC_RELEASE);
      } else {
        __atomic_store_n(reinterpret_cast<uint64_t*>(wait.address), word, __ATOMIC_RELEASE);
      }
    } else if (Covers(permitted_, wait.address, bytes, /*write=*/true) ||
               Covers(globals_, wait.address, bytes, /*write=*/true)) {
      parts_.context.WriteWord(wait.address, word, wait.bytes());
    }
  }
}

}  // namespace detshare::cuda
