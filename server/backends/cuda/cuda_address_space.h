// One session's addresses on one GPU: a reserved range with exportable physical memory behind it,
// registered host memory, and the globals of the session's libraries.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "coroutine_runtime/device.h"
#include "proto/mutex.h"
#include "server/backends/cuda/conditional_home.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/cuda_physical_memory.h"
#include "server/backends/cuda/deferred_reclaimer.h"
#include "server/backends/cuda/host_registry.h"
#include "server/backends/cuda/memory_waits.h"

namespace detshare::cuda {

class CudaAddressSpace final : public AddressSpace {
 public:
  struct Parts {
    CudaContext& context;
    DeferredReclaimer& reclaimer;
    HostRegistry& registry;
    uint64_t granularity = 0;
    // A stream on which to zero memory, if the driver was seen to hand out memory with old
    // contents; else null.
    CUstream zeroing_stream = nullptr;
    // Memory that lies in front of the range of each session of the device, which kernels may only read;
    // null: none. Natively the driver's own memory lies in front of a program's first allocation, and
    // programs that read a little too low depend on it.
    std::shared_ptr<CudaPhysicalMemory> leading;
  };

  // Reserves the addresses. Those of `leading` are the first ones, and do not belong to the session's
  // range.
  static absl::StatusOr<std::unique_ptr<CudaAddressSpace>> Create(const Parts& parts,
                                                                  DeviceAddress base,
                                                                  uint64_t size);
  ~CudaAddressSpace() override;

  DeviceAddress base() const override { return base_; }
  uint64_t size() const override { return size_; }
  absl::Status Map(DeviceAddress address, uint64_t bytes) override;
  absl::Status Unmap(DeviceAddress address, uint64_t bytes) override;
  absl::Status MapPhysical(DeviceAddress address, uint64_t bytes,
                           std::shared_ptr<PhysicalMemory> memory) override;
  absl::Status UnmapPhysical(DeviceAddress address, uint64_t bytes) override;
  absl::Status SetAccess(DeviceAddress address, uint64_t bytes, MemoryAccess access) override;
  absl::StatusOr<PhysicalRange> Behind(DeviceAddress address) const override;
  absl::Status RegisterHost(void* memory, uint64_t bytes) override;
  absl::Status UnregisterHost(void* memory) override;
  absl::Status UseManaged(const ManagedMemory::Range& range) override;
  void LeaveManaged(const ManagedMemory::Range& range) override { RemoveGlobal(range.address); }
  bool Contains(DeviceAddress address, uint64_t bytes, bool write = false) const override;
  absl::Status fault() const override {
    return parts_.context.lost() ? parts_.context.FaultOf(*this) : absl::OkStatus();
  }
  bool Busy() const override;
  void Abandon() override;

  void WaitForWork() override;

  // ---- For queues. A queue calls the space of its own device.
  CudaContext& context() const { return parts_.context; }
  // Returns how many bytes from `address` on one driver call may touch: up to the end of a
  // registered piece.
  uint64_t Reach(DeviceAddress address) const;
  // Grows whenever a range stops belonging to the space. Acquire: a thread that sees the number
  // sees the change.
  uint64_t removals() const { return removals_.load(std::memory_order_acquire); }
  // Notes that the space has work on this stream from this call on.
  void Use(const std::shared_ptr<StreamState>& stream);
  // Notes that a stream waits until the host stores `value` to `fence`. Returns false if the space
  // is abandoned: the stream must not wait then.
  bool NoteHostWait(const std::atomic<uint64_t>* fence, uint64_t value);
  MemoryWaits& memory_waits() { return memory_waits_; }
  // The homes of the session's graphs. Used by the session's thread.
  ConditionalHomes& conditional_homes() { return conditional_homes_; }

  // ---- For libraries.
  void AddGlobal(DeviceAddress address, uint64_t bytes);
  void RemoveGlobal(DeviceAddress address);

  // ---- For the context.
  void SetSuspect() { suspect_.store(true, std::memory_order_relaxed); }
  // Returns whether the session is gone. Any thread may call it.
  bool abandoned() const;
  // Returns why no call for the space can be made any more: the context's error if the context is
  // lost, and CUDA_ERROR_DEINITIALIZED if the session is gone. Any thread may call it.
  absl::Status Ended() const;
  bool suspect() const { return suspect_.load(std::memory_order_relaxed); }
  // Returns whether a stream waits for its client or for a word of memory. A client may be the
  // writer of such a word.
  bool WaitsForTheHost();
  // Lets the streams of an abandoned space pass the waits on memory where they stand. Each call
  // releases one wait of each stream.
  void ReleaseMemoryWaits();

 private:
  CudaAddressSpace(const Parts& parts, DeviceAddress base, uint64_t size)
      : parts_(parts), base_(base), size_(size), memory_waits_(parts.context.api) {}

  // Returns whether ranges that follow each other without a gap cover [address, address + bytes).
  template <typename Ranges>
  static bool Covers(const Ranges& ranges, DeviceAddress address, uint64_t bytes, bool write);
  bool IsFreePlace(DeviceAddress address, uint64_t bytes) const;
  // Maps the first `bytes` bytes of `memory` at `address`, zeroed before any session can read them.
  absl::Status Place(DeviceAddress address, uint64_t bytes, CudaPhysicalMemory& memory,
                     CUmemAccess_flags flags);
  absl::Status Permit(DeviceAddress address, uint64_t bytes, CUmemAccess_flags flags);
  absl::Status Zero(DeviceAddress address, uint64_t bytes);
  absl::Status Take(DeviceAddress address, uint64_t bytes, bool physical);

  struct Mapping {
    uint64_t bytes = 0;
    std::shared_ptr<CudaPhysicalMemory> memory;
    bool physical = false;  // mapped by MapPhysical()
  };
  struct Range {
    uint64_t bytes = 0;
    bool read_only = false;
  };

  const Parts parts_;
  const DeviceAddress base_;
  const uint64_t size_;
  DeviceAddress leading_ = 0;  // where Parts::leading is mapped; 0: it is not
  // Release: publishes the change that Contains() returns.
  void NoteRemoval() { removals_.fetch_add(1, std::memory_order_release); }
  std::atomic<uint64_t> removals_{0};
  // Set by the context's first fault, and published by the release store of CudaContext::fault_.
  std::atomic<bool> suspect_{false};

  mutable SharedMutex mutex_;
  std::map<DeviceAddress, Mapping> mapped_ ABSL_GUARDED_BY(mutex_);
  // `permitted_` are the ranges of device memory that the session's work may touch, on this and on
  // other devices.
  std::map<DeviceAddress, Range> permitted_ ABSL_GUARDED_BY(mutex_);
  std::map<DeviceAddress, Range> host_ ABSL_GUARDED_BY(mutex_);
  std::map<DeviceAddress, Range> globals_ ABSL_GUARDED_BY(mutex_);

  mutable Mutex work_mutex_;
  std::vector<std::shared_ptr<StreamState>> streams_ ABSL_GUARDED_BY(work_mutex_);
  std::vector<std::pair<const std::atomic<uint64_t>*, uint64_t>> host_waits_
      ABSL_GUARDED_BY(work_mutex_);
  bool abandoned_ ABSL_GUARDED_BY(work_mutex_) = false;

  MemoryWaits memory_waits_;
  ConditionalHomes conditional_homes_;
};

}  // namespace detshare::cuda
