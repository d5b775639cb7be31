#include "server/backends/soft/soft_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"

namespace detshare::soft {
namespace {

constexpr uint64_t kGranularity = 512;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLargestGlobalRegion = 64ull << 30;
constexpr uint64_t kHeapAlignment = 16;

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }
uint64_t RoundDown(uint64_t value, uint64_t to) { return value / to * to; }

// The maximum number of mappings of physical memory, of all sessions together. Linux allows a
// process 65530 mappings of all kinds.
constexpr int kMaxPlaced = 16384;
std::atomic<int> g_placed{0};

bool IsShared(RangeTable::Kind kind) {
  return kind == RangeTable::Kind::kShared || kind == RangeTable::Kind::kSharedReadOnly;
}

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

bool RangeTable::Add(uint64_t begin, uint64_t bytes, Kind kind) {
  if (bytes == 0 || begin > UINT64_MAX - bytes) return false;
  const WriterMutexLock lock(&mutex_);
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < begin + bytes) return false;
  if (next != ranges_.begin() && std::prev(next)->second.end > begin) return false;
  ranges_.emplace_hint(next, begin, Range{begin + bytes, kind});
  return true;
}

uint64_t RangeTable::Remove(uint64_t begin, Kind kind) {
  const WriterMutexLock lock(&mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end() || found->second.kind != kind) return 0;
  const uint64_t bytes = found->second.end - begin;
  ranges_.erase(found);
  return bytes;
}

bool RangeTable::Has(uint64_t begin, uint64_t bytes, Kind kind) const {
  const ReaderMutexLock lock(&mutex_);
  const auto found = ranges_.find(begin);
  return found != ranges_.end() && found->second.kind == kind && found->second.end - begin == bytes;
}

bool RangeTable::SetShared(uint64_t begin, uint64_t bytes, MemoryAccess access) {
  if (bytes == 0 || begin > UINT64_MAX - bytes) return false;
  const WriterMutexLock lock(&mutex_);
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first == begin) {
    if (next->second.end != begin + bytes || !IsShared(next->second.kind)) return false;
    next = ranges_.erase(next);
  } else if ((next != ranges_.end() && next->first < begin + bytes) ||
             (next != ranges_.begin() && std::prev(next)->second.end > begin)) {
    return false;
  }
  if (access == MemoryAccess::kNone) return true;
  const Kind kind = access == MemoryAccess::kRead ? Kind::kSharedReadOnly : Kind::kShared;
  ranges_.emplace_hint(next, begin, Range{begin + bytes, kind});
  return true;
}

bool RangeTable::Covers(uint64_t begin, uint64_t bytes, bool write) const {
  if (begin > UINT64_MAX - bytes) return false;
  const uint64_t end = begin + bytes;
  const ReaderMutexLock lock(&mutex_);
  auto next = ranges_.upper_bound(begin);
  if (next == ranges_.begin()) return false;
  for (auto range = std::prev(next); range != ranges_.end() && range->first <= begin; ++range) {
    if (write && range->second.kind == Kind::kSharedReadOnly) return false;
    if (range->second.end >= end) return range->second.end > begin || bytes == 0;
    if (range->second.end <= begin) return false;
    begin = range->second.end;
  }
  return false;
}

bool RangeTable::Overlaps(uint64_t begin, uint64_t bytes) const {
  const ReaderMutexLock lock(&mutex_);
  const auto next = ranges_.lower_bound(begin);
  return (next != ranges_.end() && next->first < begin + bytes) ||
         (next != ranges_.begin() && std::prev(next)->second.end > begin);
}

bool RangeTable::FindMapped(uint64_t address, uint64_t* begin, uint64_t* end) const {
  const ReaderMutexLock lock(&mutex_);
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return false;
  const auto found = std::prev(next);
  if (address >= found->second.end || found->second.kind != Kind::kMapped) return false;
  *begin = found->first;
  *end = found->second.end;
  return true;
}

bool RangeTable::IsHost(uint64_t address) const {
  const ReaderMutexLock lock(&mutex_);
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return false;
  const auto range = std::prev(next);
  return address < range->second.end && range->second.kind == Kind::kHost;
}

uint64_t RangeTable::DeviceBytes() const {
  const ReaderMutexLock lock(&mutex_);
  uint64_t bytes = 0;
  for (const auto& [begin, range] : ranges_) {
    if (range.kind != Kind::kHost && !IsShared(range.kind)) bytes += range.end - begin;
  }
  return bytes;
}

bool RangeTable::Find(uint64_t address, ptx::MemoryRange* range) const {
  const ReaderMutexLock lock(&mutex_);
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return false;
  const auto found = std::prev(next);
  if (address >= found->second.end) return false;
  const Kind kind = found->second.kind;
  *range = {found->first, found->second.end, kind != Kind::kSharedReadOnly};
  if (!IsShared(kind)) return true;
  for (auto before = found; before != ranges_.begin();) {
    --before;
    if (before->second.end != range->begin || before->second.kind != kind) break;
    range->begin = before->first;
  }
  for (auto after = next; after != ranges_.end() && after->first == range->end; ++after) {
    if (after->second.kind != kind) break;
    range->end = after->second.end;
  }
  return true;
}

uint64_t AccessGate::Enter() {
  const MutexLock lock(&mutex_);
  ++inside_[epoch_ % 2];
  return epoch_;
}

void AccessGate::Leave(uint64_t epoch) {
  const MutexLock lock(&mutex_);
  if (--inside_[epoch % 2] == 0) left_.SignalAll();
}

void AccessGate::Drain() {
  const MutexLock drain(&drain_mutex_);
  MutexLock lock(&mutex_);
  // All work inside entered in this epoch: the previous call drained the epoch before.
  const uint64_t old = epoch_++;
  left_.Wait(&mutex_,
             [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return inside_[old % 2] == 0; });
}

SpaceState::SpaceState(uint64_t base, uint64_t reserved, MemoryBudget& budget,
                       std::shared_ptr<MemoryFile> file)
    : base_(base),
      reserved_(reserved),
      size_(reserved - RoundDown(std::min(reserved / 4, kLargestGlobalRegion), kPage)),
      budget_(budget),
      file_(std::move(file)) {}

absl::StatusOr<std::shared_ptr<SpaceState>> SpaceState::Create(uint64_t base, uint64_t reserved,
                                                               MemoryBudget& budget) {
  if (base == 0 || base % kPage != 0 || reserved % kPage != 0 || reserved < 16 * kPage ||
      base > UINT64_MAX - reserved) {
    return CudaError(kCudaErrorInvalidValue,
                     "an address space consists of at least 16 whole pages");
  }
  absl::StatusOr<std::shared_ptr<MemoryFile>> file = MemoryFile::Create(reserved);
  if (!file.ok()) return file.status();
  if (!(*file)->MapAt(base, reserved, 0, /*replace=*/false)) {
    return CudaError(kCudaErrorOutOfMemory,
                     absl::StrCat("the addresses from 0x", absl::Hex(base), " on, 0x",
                                  absl::Hex(reserved), " bytes, are in use in the daemon"));
  }
  return std::shared_ptr<SpaceState>(new SpaceState(base, reserved, budget, *std::move(file)));
}

void SpaceState::Close() {
  const MutexLock lock(&globals_mutex_);
  if (closed_) return;
  closed_ = true;
  budget_.Give(ranges_.DeviceBytes());
  munmap(Pointer(base_), reserved_);
  const MutexLock physical_lock(&physical_mutex_);
  g_placed.fetch_sub(static_cast<int>(physical_.size()), std::memory_order_relaxed);
  physical_.clear();
}

absl::Status SpaceState::Map(uint64_t address, uint64_t bytes) {
  if (address % kGranularity != 0 || bytes % kGranularity != 0 || !InLowerPart(address, bytes)) {
    return CudaError(kCudaErrorInvalidValue,
                     "memory is mapped in granules, inside the session's range");
  }
  const MutexLock lock(&physical_mutex_);
  if (Overlaps(address, bytes))
    return CudaError(kCudaErrorInvalidValue, "memory is mapped there already");
  if (!budget_.Take(bytes))
    return CudaError(kCudaErrorOutOfMemory, "the software GPU's memory is used up");
  if (!ranges_.Add(address, bytes, RangeTable::Kind::kMapped)) {
    budget_.Give(bytes);
    return CudaError(kCudaErrorInvalidValue, "memory is mapped there already");
  }
  return absl::OkStatus();
}

absl::Status SpaceState::Unmap(uint64_t address, uint64_t bytes) {
  if (!ranges_.Has(address, bytes, RangeTable::Kind::kMapped)) {
    return CudaError(kCudaErrorInvalidValue, "only what was mapped can be unmapped");
  }
  ranges_.Remove(address, RangeTable::Kind::kMapped);
  // Work that looked the range up before must not write to it once it is clear.
  gate_.Drain();
  Clear(address, bytes);
  budget_.Give(bytes);
  return absl::OkStatus();
}

bool SpaceState::Overlaps(uint64_t address, uint64_t bytes) const {
  // Physical memory covers whole pages, so the check covers all pages that the range touches.
  const uint64_t begin = RoundDown(address, kPage), end = RoundUp(address + bytes, kPage);
  const auto next = physical_.lower_bound(begin);
  if (next != physical_.end() && next->first < end) return true;
  return next != physical_.begin() &&
         std::prev(next)->first + std::prev(next)->second.bytes > begin;
}

absl::Status SpaceState::MapPhysical(uint64_t address, uint64_t bytes,
                                     std::shared_ptr<SoftPhysicalMemory> memory) {
  if (address % kPage != 0 || bytes % kPage != 0 || !InLowerPart(address, bytes) ||
      bytes > memory->bytes()) {
    return CudaError(kCudaErrorInvalidValue,
                     "physical memory is mapped in pages, inside the session's range");
  }
  const MutexLock lock(&physical_mutex_);
  if (Overlaps(address, bytes) || ranges_.Overlaps(address, bytes))
    return CudaError(kCudaErrorInvalidValue, "memory is mapped there already");
  if (g_placed.fetch_add(1, std::memory_order_relaxed) >= kMaxPlaced ||
      !memory->MapAt(address, bytes)) {
    g_placed.fetch_sub(1, std::memory_order_relaxed);
    return CudaError(kCudaErrorOutOfMemory, "this process can map no more memory");
  }
  physical_.emplace(address, Placed{bytes, std::move(memory)});
  return absl::OkStatus();
}

absl::Status SpaceState::UnmapPhysical(uint64_t address, uint64_t bytes) {
  const MutexLock lock(&physical_mutex_);
  const auto found = physical_.find(address);
  if (found == physical_.end() || found->second.bytes != bytes) {
    return CudaError(kCudaErrorInvalidValue, "only what was mapped can be unmapped");
  }
  ranges_.SetShared(address, bytes, MemoryAccess::kNone);
  // Work that still uses the addresses must not write to the memory that replaces the mapping.
  gate_.Drain();
  // This fails only when the kernel must split a mapping. This call replaces a whole mapping.
  if (!file_->MapAt(address, bytes, address - base_, /*replace=*/true))
    return CudaError(kCudaErrorOutOfMemory, "this process can map no more memory");
  physical_.erase(found);
  g_placed.fetch_sub(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status SpaceState::SetAccess(uint64_t address, uint64_t bytes, MemoryAccess access) {
  if (InLowerPart(address, bytes)) {
    const MutexLock lock(&physical_mutex_);
    const auto found = physical_.find(address);
    if (found == physical_.end() || found->second.bytes != bytes)
      return CudaError(kCudaErrorInvalidValue, "not a range that one call has mapped");
  }
  if (!ranges_.SetShared(address, bytes, access))
    return CudaError(kCudaErrorInvalidValue, "other memory is there");
  // Work that looked the range up before may still use the old access.
  if (access != MemoryAccess::kReadWrite) gate_.Drain();
  return absl::OkStatus();
}

absl::StatusOr<PhysicalRange> SpaceState::Behind(uint64_t address) const {
  {
    const MutexLock lock(&physical_mutex_);
    const auto next = physical_.upper_bound(address);
    if (next != physical_.begin() &&
        address - std::prev(next)->first < std::prev(next)->second.bytes)
      return PhysicalRange{std::prev(next)->second.memory, std::prev(next)->first};
  }
  uint64_t begin, end;
  if (!ranges_.FindMapped(address, &begin, &end))
    return CudaError(kCudaErrorInvalidValue, "nothing is mapped there");
  begin = RoundDown(begin, kPage);
  end = RoundUp(end, kPage);
  return PhysicalRange{std::make_shared<SoftPhysicalMemory>(file_, begin - base_, end - begin),
                       begin};
}

void SpaceState::Clear(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  const uint64_t first_page = RoundUp(address, kPage), last_page = RoundDown(end, kPage);
  if (first_page < last_page) {
    std::memset(Pointer(address), 0, first_page - address);
    std::memset(Pointer(last_page), 0, end - last_page);
    file_->Discard(first_page - base_, last_page - first_page);
  } else {
    std::memset(Pointer(address), 0, bytes);
  }
}

absl::StatusOr<uint64_t> SpaceState::AllocateGlobal(uint64_t bytes, uint64_t alignment) {
  const uint64_t bottom = base_ + size_;
  if (bytes > reserved_ - size_ || alignment > (1 << 20)) {
    return CudaError(kCudaErrorOutOfMemory, "a module's variables do not fit");
  }
  const uint64_t room = std::max<uint64_t>(bytes, 1);
  const MutexLock lock(&globals_mutex_);
  if (closed_) return CudaError(kCudaErrorInvalidContext, "the session is gone");
  uint64_t ceiling = base_ + reserved_;
  auto below = globals_.end();
  uint64_t address = 0;
  while (true) {
    // The gap under `ceiling` reaches down to the end of the next range.
    const uint64_t floor = below == globals_.begin() ? bottom : std::prev(below)->second;
    if (ceiling - floor >= room) {
      address = RoundDown(ceiling - room, alignment);
      if (address >= floor) break;
    }
    if (below == globals_.begin())
      return CudaError(kCudaErrorOutOfMemory, "a module's variables do not fit");
    --below;
    ceiling = below->first;
  }
  if (!budget_.Take(room))
    return CudaError(kCudaErrorOutOfMemory, "the software GPU's memory is used up");
  globals_.emplace(address, address + room);
  ranges_.Add(address, room, RangeTable::Kind::kGlobal);
  return address;
}

void SpaceState::FreeGlobal(uint64_t address) {
  const MutexLock lock(&globals_mutex_);
  if (closed_) return;
  const uint64_t bytes = ranges_.Remove(address, RangeTable::Kind::kGlobal);
  if (bytes == 0) return;
  Clear(address, bytes);
  globals_.erase(address);
  budget_.Give(bytes);
}

bool SpaceState::SetHeapBytes(uint64_t bytes) {
  const MutexLock lock(&heap_mutex_);
  if (heap_base_ != 0) return bytes == heap_bytes_;
  heap_bytes_ = bytes;
  return true;
}

bool SpaceState::CreateHeapLocked() {
  const absl::StatusOr<uint64_t> base = AllocateGlobal(heap_bytes_, 1 << 16);
  if (!base.ok()) return false;
  heap_base_ = *base;
  return true;
}

uint64_t SpaceState::Allocate(uint64_t bytes) {
  const MutexLock lock(&heap_mutex_);
  if (bytes == 0 || bytes > heap_bytes_) return 0;
  bytes = RoundUp(bytes, kHeapAlignment);
  if (heap_base_ == 0 && !CreateHeapLocked()) return 0;
  uint64_t begin = heap_base_;
  for (const auto& [address, used] : heap_used_) {
    if (address - begin >= bytes) break;
    begin = address + used;
  }
  if (heap_base_ + heap_bytes_ - begin < bytes) return 0;
  heap_used_.emplace(begin, bytes);
  return begin;
}

bool SpaceState::Free(uint64_t address) {
  const MutexLock lock(&heap_mutex_);
  return heap_used_.erase(address) != 0;
}

bool SpaceState::SetFault(int result, const std::string& message) {
  {
    const MutexLock lock(&fault_mutex_);
    if (fault_.load(std::memory_order_relaxed) != 0) return false;
    fault_message_ = message;
    fault_.store(result, std::memory_order_release);
  }
  Announce();
  return true;
}

absl::Status SpaceState::fault() const {
  const int result = fault_.load(std::memory_order_acquire);
  return result == 0 ? absl::OkStatus() : CudaError(result, fault_message_);
}

void SpaceState::EndWork() {
  if (work_.fetch_sub(1, std::memory_order_acq_rel) == 1) work_.notify_all();
}

void SpaceState::WaitIdle() {
  for (uint64_t work = work_.load(std::memory_order_acquire); work != 0;
       work = work_.load(std::memory_order_acquire)) {
    work_.wait(work, std::memory_order_acquire);
  }
}

SoftAddressSpace::~SoftAddressSpace() {
  state_->WaitIdle();
  state_->Close();
}

absl::Status SoftAddressSpace::RegisterHost(void* memory, uint64_t bytes) {
  const uint64_t address = reinterpret_cast<uint64_t>(memory);
  const uint64_t last = address + bytes;
  if (address % kPage != 0 || bytes == 0 || last < address) {
    return CudaError(kCudaErrorInvalidValue, "registered host memory must begin at a page");
  }
  if (last > base() && address < base() + state_->reserved()) {
    return CudaError(kCudaErrorInvalidValue, "the range contains device memory");
  }
  if (!state_->ranges().Add(address, bytes, RangeTable::Kind::kHost)) {
    constexpr int kHostMemoryAlreadyRegistered = 712;
    return CudaError(kHostMemoryAlreadyRegistered, "the host memory is registered already");
  }
  return absl::OkStatus();
}

absl::Status SoftAddressSpace::UnregisterHost(void* memory) {
  if (state_->ranges().Remove(reinterpret_cast<uint64_t>(memory), RangeTable::Kind::kHost) == 0) {
    constexpr int kHostMemoryNotRegistered = 713;
    return CudaError(kHostMemoryNotRegistered, "the host memory is not registered");
  }
  // A kernel in flight may still use the memory, although the program should have waited for it.
  state_->gate().Drain();
  return absl::OkStatus();
}

void SoftAddressSpace::Abandon() {
  if (outlives_session_) return;
  state_->Abandon();
  wake_();
}

}  // namespace detshare::soft
