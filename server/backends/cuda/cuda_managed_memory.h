// Managed memory of the real driver, which clients map themselves (uvm_sharing.h).
//
// For each range libcuda has an allocation, so its functions accept the addresses. The daemon's own
// mapping of it is replaced by nothing. Allocations are kept for later ranges, because cuMemFree()
// waits for everything that runs.
#pragma once

#include <memory>
#include <vector>

#include "coroutine_runtime/managed_addresses.h"
#include "coroutine_runtime/managed_memory.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

class CudaManagedMemory final : public ManagedMemory {
 public:
  // `contexts` are those of the devices, whose order is that of the driver; they outlive this object.
  // Null if the kernel module or a device cannot share.
  static std::unique_ptr<CudaManagedMemory> Create(std::vector<CudaContext*> contexts,
                                                   const ManagedWindow& window);

  int descriptor() const override { return descriptor_; }
  absl::StatusOr<Range> Reserve(uint64_t bytes) override;
  void Release(const Range& range) override;
  absl::Status Advise(uint64_t address, uint64_t bytes, int advice, ManagedPlace place) override;

 private:
  CudaManagedMemory(std::vector<CudaContext*> contexts, int descriptor, const ManagedWindow& window,
                    uint64_t capacity)
      : contexts_(std::move(contexts)), descriptor_(descriptor), addresses_(window, capacity) {}

  // Makes libcuda's allocation at a fresh address.
  absl::Status Allocate(uint64_t address, uint64_t reserved);
  // Returns whether no process maps the range any more.
  bool Unused(uint64_t address, uint64_t reserved) const;
  // Gives back the ranges that are no longer mapped.
  void GiveBackUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<CudaContext*> contexts_;
  const int descriptor_;
  Mutex mutex_;
  ManagedAddresses addresses_ ABSL_GUARDED_BY(mutex_);
  // Released ranges that a process still maps.
  std::vector<Range> mapped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace detshare::cuda
