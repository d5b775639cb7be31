// Memory of one GPU without an address.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "coroutine_runtime/physical_memory.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

// Any thread. Does not outlive its context.
class CudaPhysicalMemory final : public PhysicalMemory {
 public:
  static absl::StatusOr<std::shared_ptr<CudaPhysicalMemory>> Create(CudaContext& context,
                                                                    uint64_t bytes);
  ~CudaPhysicalMemory() override;

  uint64_t bytes() const override { return bytes_; }
  CUmemGenericAllocationHandle handle() const { return handle_; }
  CudaContext& context() const { return context_; }

  // True once: for whoever maps it first, and zeroes it where the driver does not.
  bool TakeFirstUse() { return !used_.exchange(true, std::memory_order_relaxed); }

 private:
  CudaPhysicalMemory(CudaContext& context, CUmemGenericAllocationHandle handle, uint64_t bytes)
      : context_(context), handle_(handle), bytes_(bytes) {}

  CudaContext& context_;
  const CUmemGenericAllocationHandle handle_;
  const uint64_t bytes_;
  std::atomic<bool> used_{false};  // relaxed: two that map it at once are of one session
};

// Where memory of the context's GPU is, for the driver.
CUmemLocation LocationOf(const CudaContext& context);

}  // namespace detshare::cuda
