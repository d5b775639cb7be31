// Registers host memory, so that the GPUs can reach it. A registration belongs to the process and
// holds for all devices, so one registry serves all devices.
//
// Memory is registered in pieces, because registering holds the context's lock for about 45 us per
// MiB. Unregistering drains the context, so it is left to the deferred reclaimer. The pages stay
// pinned until then, even if the memory is unmapped meanwhile. To register other memory at such an
// address, the registry first unregisters the old memory at an idle moment. To avoid this delay,
// code that maps memory to register it uses addresses where nothing was mapped before
// (coroutine_runtime/fresh_address.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/deferred_reclaimer.h"

namespace detshare::cuda {

class CudaAddressSpace;

inline constexpr uint64_t kHostPieceBytes = 16ull << 20;

// Outlives the deferred reclaimers that callers pass. Any thread may call it.
class HostRegistry {
 public:
  // The GPU sees registered memory, also of other GPUs' sessions, until RemoveGpu(). So nothing is registered
  // or unregistered beside its graphs with conditional nodes. Call it before the GPU's sessions register
  // memory.
  void AddGpu(CudaContext& gpu);
  void RemoveGpu(CudaContext& gpu);

  // Registers memory on behalf of `space`. Several devices may register the same memory.
  absl::Status Register(CudaAddressSpace& space, CudaContext& context, DeferredReclaimer& reclaimer,
                        void* memory, uint64_t bytes);
  // Takes back one registration of exactly this range, and unregisters the memory later.
  void Unregister(CudaContext& context, DeferredReclaimer& reclaimer, void* memory, uint64_t bytes);

 private:
  struct Registration {
    uint64_t bytes = 0;
    int users = 0;  // 0: waits to be unregistered
    uint64_t serial = 0;
  };
  absl::Status RegisterRange(CudaAddressSpace& space, CudaContext& context, uint64_t address,
                             uint64_t bytes);
  // A registration that must be unregistered first.
  struct Old {
    uint64_t address = 0, serial = 0;
  };
  // Does nothing if there is such a one, and sets `*old`. Call it apart from graphs.
  absl::Status TryRegister(CudaContext& context, uint64_t address, uint64_t bytes,
                           std::optional<Old>* old);
  void Reclaim(CudaContext& context, uint64_t address, uint64_t serial);
  // CudaContext::ApartFromOwnGraphs() of all GPUs.
  absl::Status ApartFromOwnGraphs(absl::FunctionRef<absl::Status()> change);
  // The same of the GPUs from this one on.
  absl::Status ApartFrom(size_t gpu, absl::FunctionRef<absl::Status()> change)
      ABSL_SHARED_LOCKS_REQUIRED(gpus_mutex_);

  SharedMutex gpus_mutex_;  // readers change something
  std::vector<CudaContext*> gpus_ ABSL_GUARDED_BY(gpus_mutex_);
  Mutex mutex_;  // behind ApartFromOwnGraphs()
  std::map<uint64_t, Registration> registrations_ ABSL_GUARDED_BY(mutex_);  // by address
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace detshare::cuda
