// Host memory that the GPUs may reach. Registrations belong to the process, whatever the device:
// one registry serves all.
//
// Memory is registered in pieces, because registering holds the context's lock for about 45 us a
// MiB. Unregistering drains the context, so it is left to the deferred reclaimer; the pages stay pinned
// until then, even when the memory is unmapped meanwhile. Other memory at an address that still
// waits for this is registered after it, at an idle moment, too: whoever maps memory to register it
// does so where none was before (coroutine_runtime/fresh_address.h).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "absl/status/status.h"
#include "server/backends/cuda/deferred_reclaimer.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

class CudaAddressSpace;

inline constexpr uint64_t kHostPieceBytes = 16ull << 20;

// Any thread. Outlives the deferred reclaimers that it was given.
class HostRegistry {
 public:
  // In the name of `space`. Several devices may register the same memory.
  absl::Status Register(CudaAddressSpace& space, CudaContext& context, DeferredReclaimer& reclaimer,
                        void* memory, uint64_t bytes);
  // Takes one registration of exactly this range back, later.
  void Unregister(CudaContext& context, DeferredReclaimer& reclaimer, void* memory, uint64_t bytes);

 private:
  struct Registration {
    uint64_t bytes = 0;
    int users = 0;  // 0: waits to be unregistered
    uint64_t serial = 0;
  };
  absl::Status RegisterRange(CudaAddressSpace& space, CudaContext& context, uint64_t address,
                             uint64_t bytes);
  void Reclaim(CudaContext& context, uint64_t address, uint64_t serial);

  std::mutex mutex_;
  std::map<uint64_t, Registration> registrations_;  // by address
  uint64_t next_serial_ = 1;
};

}  // namespace detshare::cuda
