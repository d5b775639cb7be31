// The memory of a session on the software GPU.
//
// The whole range of a session is one reservation of the daemon's address space. It is readable and
// writable from the start, so that device addresses are addresses of the daemon and no kernel can
// crash the daemon. The table of ranges alone decides, to the byte, whether an address *belongs* to
// the session.
//
//   base                                       base + size()            end of the reservation
//    | Map / Unmap: the session's allocations        | globals, device heap   |
//    | MapPhysical: memory that may have other addresses, too |
//
// The reservation maps a file (soft_physical_memory.h), so that other sessions can map parts of it.
// Bytes that are not mapped are always zero: Unmap gives whole pages back to the system and clears
// the rest. MapPhysical maps pages of other files over parts of the reservation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "proto/mutex.h"
#include "server/backends/soft/ptx/host_services.h"
#include "server/backends/soft/soft_conditions.h"
#include "server/backends/soft/soft_image_registry.h"
#include "server/backends/soft/soft_physical_memory.h"

namespace detshare::soft {

// The address ranges that belong to a session, and what kernels may do there. Any thread. Kernels
// in flight ask through MemoryGuard, once for each range and quantum.
class RangeTable final : public ptx::MemoryGuard {
 public:
  // kShared: memory that MapPhysical mapped, or memory of another device of the session.
  // kGlobal: also the variables in constant memory. Kernels can write them through their addresses,
  // as on a real GPU.
  enum class Kind { kMapped, kHost, kGlobal, kShared, kSharedReadOnly };
  struct Range {
    uint64_t end = 0;
    Kind kind = Kind::kMapped;
  };

  // Returns false when the range overlaps another range, is empty, or wraps around.
  bool Add(uint64_t begin, uint64_t bytes, Kind kind);
  // Removes the range of this kind that begins at `begin`. Returns its size in bytes, or 0 when
  // there is no such range.
  uint64_t Remove(uint64_t begin, Kind kind);
  bool Has(uint64_t begin, uint64_t bytes, Kind kind) const;
  // Makes exactly this range shared memory with this access; removes it for kNone. Returns false
  // when another range is there.
  bool SetShared(uint64_t begin, uint64_t bytes, MemoryAccess access);
  // Whether every byte is in a range and, with `write`, may be written.
  bool Covers(uint64_t begin, uint64_t bytes, bool write = false) const;
  // Whether at least one byte is in a range. `begin + bytes` must not wrap around.
  bool Overlaps(uint64_t begin, uint64_t bytes) const;
  // Finds the range of kind kMapped that contains `address`.
  bool FindMapped(uint64_t address, uint64_t* begin, uint64_t* end) const;
  bool IsHost(uint64_t address) const;
  // The bytes of the card that count for the session here: all ranges except host and shared
  // memory.
  uint64_t DeviceBytes() const;

  // Finds the range that contains `address`. Joins adjacent ranges of shared memory, because
  // programs build large ranges from them; does not join other ranges.
  bool Find(uint64_t address, ptx::MemoryRange* range) const override;

 private:
  mutable SharedMutex mutex_;
  std::map<uint64_t, Range> ranges_ ABSL_GUARDED_BY(mutex_);  // by begin; never overlapping
};

// Lets a thread that removes memory wait until no work uses addresses that it looked up before.
//
// Work enters before it looks memory up, and leaves when it no longer uses the memory, at the
// latest after one turn. A thread first removes memory from the tables and then calls Drain. Drain
// waits for all work that entered before the call, so no work still uses the removed memory. Work
// that enters later does not prolong the wait. Any thread.
class AccessGate {
 public:
  class Pass {
   public:
    explicit Pass(AccessGate& gate) : gate_(gate), epoch_(gate.Enter()) {}
    ~Pass() { gate_.Leave(epoch_); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    AccessGate& gate_;
    const uint64_t epoch_;
  };
  // The calling thread must not have a Pass of this gate.
  void Drain();

 private:
  friend class Pass;
  uint64_t Enter();
  void Leave(uint64_t epoch);

  Mutex drain_mutex_;  // one Drain at a time
  Mutex mutex_;
  CondVar left_;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  // Passes from even and from odd epochs.
  std::array<uint64_t, 2> inside_ ABSL_GUARDED_BY(mutex_){};
};

// The state of a SoftAddressSpace, which it shares with its work in flight.
class SpaceState final : public ptx::DeviceHeap {
 public:
  // Reserves [base, base + reserved): size() bytes for Map and, above them, room for globals and
  // the heap.
  static absl::StatusOr<std::shared_ptr<SpaceState>> Create(uint64_t base, uint64_t reserved,
                                                            MemoryBudget& budget);
  ~SpaceState() override { Close(); }
  // Gives the memory and the addresses back. The space must have no work in flight. Libraries may
  // still hold the object.
  void Close();
  SpaceState(const SpaceState&) = delete;
  SpaceState& operator=(const SpaceState&) = delete;

  uint64_t base() const { return base_; }
  uint64_t size() const { return size_; }
  uint64_t reserved() const { return reserved_; }  // size() and the room above it, in bytes
  Conditions& conditions() { return conditions_; }
  RangeTable& ranges() { return ranges_; }
  const RangeTable& ranges() const { return ranges_; }

  ImageRegistry& images() { return images_; }
  const ImageRegistry& images() const { return images_; }

  // Work has a Pass while it uses addresses that it looked up. Device memory always stays readable;
  // host memory does not.
  AccessGate& gate() { return gate_; }

  absl::Status Map(uint64_t address, uint64_t bytes);
  absl::Status Unmap(uint64_t address, uint64_t bytes);
  absl::Status MapPhysical(uint64_t address, uint64_t bytes,
                           std::shared_ptr<SoftPhysicalMemory> memory);
  absl::Status UnmapPhysical(uint64_t address, uint64_t bytes);
  absl::Status SetAccess(uint64_t address, uint64_t bytes, MemoryAccess access);
  absl::StatusOr<PhysicalRange> Behind(uint64_t address) const;

  // Allocates zeroed memory above size(): the first gap that fits, from the top down. `alignment`
  // is a power of two, at most 1 MiB.
  absl::StatusOr<uint64_t> AllocateGlobal(uint64_t bytes, uint64_t alignment);
  void FreeGlobal(uint64_t address);

  // Limits of the session's context. The stack is that of each thread of a kernel.
  std::atomic<uint64_t> stack_bytes{1024};
  // The kernels that kernels have launched and that wait for their turn. Relaxed: a count that publishes
  // nothing.
  std::atomic<uint64_t> waiting_children{0};
  // Returns false when the heap exists already and has another size.
  bool SetHeapBytes(uint64_t bytes);

  // ptx::DeviceHeap: the heap of device-side malloc. It is created at its first use and lasts until
  // the session ends.
  uint64_t Allocate(uint64_t bytes) override;
  bool Free(uint64_t address) override;

  // AddressSpace::Announce. The engine announces a written fence before the work ends (EndWork).
  void set_announce(std::function<void()> wake) { announce_ = std::move(wake); }
  void Announce() const {
    if (announce_) announce_();
  }

  // Keeps the first fault, announces it, and ignores later ones. Returns true for the first.
  bool SetFault(int result, const std::string& message);
  absl::Status fault() const;
  void Abandon() { abandoned_.store(true, std::memory_order_release); }
  bool abandoned() const { return abandoned_.load(std::memory_order_acquire); }
  bool faulted() const { return fault_.load(std::memory_order_acquire) != 0; }
  // Whether the engine skips the work of the space.
  bool stopped() const { return abandoned() || fault_.load(std::memory_order_acquire) != 0; }

  // Count the work in flight. WaitIdle returns when all work that began has ended.
  void BeginWork() { work_.fetch_add(1, std::memory_order_relaxed); }
  void EndWork();
  void WaitIdle();
  bool working() const { return work_.load(std::memory_order_relaxed) != 0; }

  // The host memory that the queued work takes (HeldMemory).
  uint64_t held_bytes() const { return held_.load(std::memory_order_relaxed); }

  uint64_t NextGridId() { return next_grid_.fetch_add(1, std::memory_order_relaxed) + 1; }

 private:
  friend class HeldMemory;
  struct Placed {
    uint64_t bytes = 0;
    std::shared_ptr<SoftPhysicalMemory> memory;
  };

  SpaceState(uint64_t base, uint64_t reserved, MemoryBudget& budget,
             std::shared_ptr<MemoryFile> file);
  bool InLowerPart(uint64_t address, uint64_t bytes) const {
    return bytes != 0 && address >= base_ && bytes <= size_ && address - base_ <= size_ - bytes;
  }
  // Whether a mapping in `physical_` overlaps.
  bool Overlaps(uint64_t address, uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(physical_mutex_);
  void Clear(uint64_t address, uint64_t bytes);
  bool CreateHeapLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mutex_);

  std::function<void()> announce_;  // constant while there is work
  const uint64_t base_;
  const uint64_t reserved_;  // bytes of the reservation
  const uint64_t size_;      // bytes of its lower part
  MemoryBudget& budget_;
  const std::shared_ptr<MemoryFile> file_;  // behind the reservation
  RangeTable ranges_;
  ImageRegistry images_;
  AccessGate gate_;
  Conditions conditions_;

  mutable Mutex physical_mutex_;
  std::map<uint64_t, Placed> physical_ ABSL_GUARDED_BY(physical_mutex_);  // by address

  Mutex globals_mutex_;
  bool closed_ ABSL_GUARDED_BY(globals_mutex_) = false;
  // Begin -> end, page-rounded.
  std::map<uint64_t, uint64_t> globals_ ABSL_GUARDED_BY(globals_mutex_);

  Mutex heap_mutex_;
  uint64_t heap_bytes_ ABSL_GUARDED_BY(heap_mutex_) = 8 << 20;
  uint64_t heap_base_ ABSL_GUARDED_BY(heap_mutex_) = 0;
  // Address -> bytes. Not in device memory, where kernels could write it.
  std::map<uint64_t, uint64_t> heap_used_ ABSL_GUARDED_BY(heap_mutex_);

  std::atomic<int> fault_{0};  // release: publishes fault_message_
  Mutex fault_mutex_;
  std::string fault_message_;
  std::atomic<bool> abandoned_{false};
  std::atomic<uint64_t> work_{
      0};  // its release sequence publishes the effects of ended work to WaitIdle
  std::atomic<uint64_t> next_grid_{0};
  std::atomic<uint64_t> held_{0};  // bytes; relaxed: a sum that publishes nothing
};

// Host memory that counts for a space until this object ends. Any thread, one at a time.
class HeldMemory {
 public:
  HeldMemory() = default;
  HeldMemory(std::shared_ptr<SpaceState> space, uint64_t bytes)
      : space_(std::move(space)), bytes_(bytes) {
    space_->held_.fetch_add(bytes_, std::memory_order_relaxed);
  }
  HeldMemory(HeldMemory&&) = default;
  HeldMemory& operator=(HeldMemory&& other) noexcept {
    std::swap(space_, other.space_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HeldMemory() {
    if (space_ != nullptr) space_->held_.fetch_sub(bytes_, std::memory_order_relaxed);
  }

 private:
  std::shared_ptr<SpaceState> space_;
  uint64_t bytes_ = 0;
};

class SoftAddressSpace final : public AddressSpace {
 public:
  // `outlives_session`: Abandon() does nothing. `wake` makes the engine check again the operations
  // that wait.
  SoftAddressSpace(std::shared_ptr<SpaceState> state, bool outlives_session,
                   std::function<void()> wake)
      : state_(std::move(state)), outlives_session_(outlives_session), wake_(std::move(wake)) {}
  ~SoftAddressSpace() override;

  DeviceAddress base() const override { return state_->base(); }
  uint64_t size() const override { return state_->size(); }
  absl::Status Map(DeviceAddress address, uint64_t bytes) override {
    return state_->Map(address, bytes);
  }
  absl::Status Unmap(DeviceAddress address, uint64_t bytes) override {
    return state_->Unmap(address, bytes);
  }
  absl::Status MapPhysical(DeviceAddress address, uint64_t bytes,
                           std::shared_ptr<PhysicalMemory> memory) override {
    return state_->MapPhysical(address, bytes,
                               std::static_pointer_cast<SoftPhysicalMemory>(std::move(memory)));
  }
  absl::Status UnmapPhysical(DeviceAddress address, uint64_t bytes) override {
    return state_->UnmapPhysical(address, bytes);
  }
  absl::Status SetAccess(DeviceAddress address, uint64_t bytes, MemoryAccess access) override {
    return state_->SetAccess(address, bytes, access);
  }
  absl::StatusOr<PhysicalRange> Behind(DeviceAddress address) const override {
    return state_->Behind(address);
  }
  absl::Status RegisterHost(void* memory, uint64_t bytes) override;
  absl::Status UnregisterHost(void* memory) override;
  absl::Status UseManaged(const ManagedMemory::Range& range) override {
    return RegisterHost(reinterpret_cast<void*>(range.address), range.bytes);
  }
  void LeaveManaged(const ManagedMemory::Range& range) override {
    UnregisterHost(reinterpret_cast<void*>(range.address)).IgnoreError();
  }
  bool Contains(DeviceAddress address, uint64_t bytes, bool write = false) const override {
    return state_->ranges().Covers(address, bytes, write);
  }
  absl::Status fault() const override { return state_->fault(); }
  bool Announce(std::function<void()> wake) override {
    state_->set_announce(std::move(wake));
    return true;
  }
  bool Busy() const override { return state_->working(); }
  uint64_t HeldBytes() const override { return state_->held_bytes(); }
  void Abandon() override;
  void WaitForWork() override { state_->WaitIdle(); }

  const std::shared_ptr<SpaceState>& state() const { return state_; }

 private:
  const std::shared_ptr<SpaceState> state_;
  const bool outlives_session_;
  const std::function<void()> wake_;
};

}  // namespace detshare::soft
