#include "server/backends/cuda/host_registry.h"

#include <algorithm>
#include <iterator>

#include "coroutine_runtime/status_cuda.h"
#include "server/backends/cuda/cuda_address_space.h"

namespace detshare::cuda {

absl::Status HostRegistry::Register(CudaAddressSpace& space, CudaContext& context,
                                    DeferredReclaimer& reclaimer, void* memory, uint64_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(memory);
  uint64_t done = 0;
  while (done < bytes) {
    const uint64_t piece = std::min(kHostPieceBytes, bytes - done);
    absl::Status status = RegisterRange(space, context, begin + done, piece);
    if (!status.ok()) {
      if (done != 0) Unregister(context, reclaimer, memory, done);
      return status;
    }
    done += piece;
  }
  return absl::OkStatus();
}

// Registers one piece at a time, so that registrations and launches of other sessions come in
// between.
absl::Status HostRegistry::RegisterRange(CudaAddressSpace& space, CudaContext& context,
                                         uint64_t address, uint64_t bytes) {
  MutexLock lock(&mutex_);
  for (;;) {
    auto piece = registrations_.upper_bound(address);
    if (piece != registrations_.begin() &&
        std::prev(piece)->first + std::prev(piece)->second.bytes > address) {
      --piece;
    }
    if (piece == registrations_.end() || piece->first >= address + bytes) break;
    if (piece->second.users > 0) {
      if (piece->first == address && piece->second.bytes == bytes) {
        ++piece->second.users;
        return absl::OkStatus();
      }
      return CudaError(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                       "the range overlaps registered memory");
    }
    // Unregistering drains the context. Without an idle moment it would hold the driver's lock and
    // wait for streams that wait for their clients, and those clients would wait for the lock.
    const uint64_t old = piece->first, serial = piece->second.serial;
    lock.Unlock();
    absl::Status status = context.ordinary.idle.Run(space, [&] {
      Reclaim(context, old, serial);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    lock.Lock();
  }
  void* const memory = reinterpret_cast<void*>(address);
  absl::Status status =
      context.Check(context.api.cuMemHostRegister(
                        memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                    "cuMemHostRegister");
  if (!status.ok()) return status;
  CUdeviceptr mapped = 0;
  status = context.Check(context.api.cuMemHostGetDevicePointer(&mapped, memory, 0),
                         "cuMemHostGetDevicePointer");
  if (status.ok() && mapped != address) {
    status =
        CudaError(CUDA_ERROR_NOT_SUPPORTED, "the GPU sees registered memory at another address");
  }
  if (!status.ok()) {
    context.api.cuMemHostUnregister(memory);
    return status;
  }
  registrations_[address] = Registration{bytes, 1, next_serial_++};
  return absl::OkStatus();
}

void HostRegistry::Unregister(CudaContext& context, DeferredReclaimer& reclaimer, void* memory,
                              uint64_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(memory);
  MutexLock lock(&mutex_);
  for (uint64_t done = 0; done < bytes; done += kHostPieceBytes) {
    const auto found = registrations_.find(begin + done);
    if (found == registrations_.end() || --found->second.users > 0) continue;
    reclaimer.Later(DeferredReclaimer::Drains::kOrdinary,
                    [this, &context, address = begin + done, serial = found->second.serial] {
                      Reclaim(context, address, serial);
                    });
  }
}

void HostRegistry::Reclaim(CudaContext& context, uint64_t address, uint64_t serial) {
  MutexLock lock(&mutex_);
  const auto found = registrations_.find(address);
  if (found == registrations_.end() || found->second.serial != serial || found->second.users > 0)
    return;
  context.Enter();
  context
      .Check(context.api.cuMemHostUnregister(reinterpret_cast<void*>(address)),
             "cuMemHostUnregister")
      .IgnoreError();
  registrations_.erase(found);
}

}  // namespace detshare::cuda
