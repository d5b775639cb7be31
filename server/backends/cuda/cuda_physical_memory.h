// Memory of one GPU that has no address.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "coroutine_runtime/physical_memory.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

// Must not outlive its context. Any thread may call it.
class CudaPhysicalMemory final : public PhysicalMemory {
 public:
  static absl::StatusOr<std::shared_ptr<CudaPhysicalMemory>> Create(CudaContext& context,
                                                                    uint64_t bytes);
  ~CudaPhysicalMemory() override;

  uint64_t bytes() const override { return bytes_; }
  CUmemGenericAllocationHandle handle() const { return handle_; }
  CudaContext& context() const { return context_; }

  // Returns true once: to the space that maps the memory first, which zeroes it if the driver does
  // not.
  bool TakeFirstUse() { return !used_.exchange(true, std::memory_order_relaxed); }

 private:
  CudaPhysicalMemory(CudaContext& context, CUmemGenericAllocationHandle handle, uint64_t bytes)
      : context_(context), handle_(handle), bytes_(bytes) {}

  CudaContext& context_;
  const CUmemGenericAllocationHandle handle_;
  const uint64_t bytes_;
  // Whether the memory was mapped before. Relaxed: spaces that map it at once, and for the first time,
  // belong to one session.
  std::atomic<bool> used_{false};
};

// Returns the location of the context's GPU for the driver's calls.
CUmemLocation LocationOf(const CudaContext& context);

}  // namespace detshare::cuda
