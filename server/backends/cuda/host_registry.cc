#include "server/backends/cuda/host_registry.h"

#include <algorithm>
#include <iterator>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_address_space.h"

namespace detshare::cuda {

void HostRegistry::AddGpu(CudaContext& gpu) {
  const WriterMutexLock lock(&gpus_mutex_);
  gpus_.push_back(&gpu);
}

void HostRegistry::RemoveGpu(CudaContext& gpu) {
  const WriterMutexLock lock(&gpus_mutex_);
  std::erase(gpus_, &gpu);
}

absl::Status HostRegistry::ApartFromOwnGraphs(absl::FunctionRef<absl::Status()> change) {
  const ReaderMutexLock lock(&gpus_mutex_);
  return ApartFrom(0, change);
}

absl::Status HostRegistry::ApartFrom(size_t gpu, absl::FunctionRef<absl::Status()> change) {
  if (gpu == gpus_.size()) return change();
  return gpus_[gpu]->ApartFromOwnGraphs(
      [&]() ABSL_SHARED_LOCKS_REQUIRED(gpus_mutex_) { return ApartFrom(gpu + 1, change); });
}

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
  for (;;) {
    std::optional<Old> old;
    const absl::Status status =
        ApartFromOwnGraphs([&] { return TryRegister(context, address, bytes, &old); });
    if (!old.has_value()) return status;
    // Unregistering drains the context. Without an idle moment it would hold the driver's lock and
    // wait for streams that wait for their clients, and those clients would wait for the lock.
    DETSHARE_RETURN_IF_ERROR(context.ordinary.idle.Run(space, [&] {
      Reclaim(context, old->address, old->serial);
      return absl::OkStatus();
    }));
  }
}

absl::Status HostRegistry::TryRegister(CudaContext& context, uint64_t address, uint64_t bytes,
                                       std::optional<Old>* old) {
  const MutexLock lock(&mutex_);
  auto piece = registrations_.upper_bound(address);
  if (piece != registrations_.begin() &&
      std::prev(piece)->first + std::prev(piece)->second.bytes > address) {
    --piece;
  }
  if (piece != registrations_.end() && piece->first < address + bytes) {
    if (piece->second.users == 0) {
      *old = Old{piece->first, piece->second.serial};
      return absl::OkStatus();
    }
    if (piece->first == address && piece->second.bytes == bytes) {
      ++piece->second.users;
      return absl::OkStatus();
    }
    return CudaError(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                     "the range overlaps registered memory");
  }
  DETSHARE_RETURN_IF_ERROR(context.RegisterPages(reinterpret_cast<void*>(address), bytes));
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
  const auto unregister = [&] {
    const MutexLock lock(&mutex_);
    const auto found = registrations_.find(address);
    if (found == registrations_.end() || found->second.serial != serial || found->second.users > 0)
      return absl::OkStatus();
    context.Enter();
    registrations_.erase(found);
    return context.Check(context.api.cuMemHostUnregister(reinterpret_cast<void*>(address)),
                         "cuMemHostUnregister");
  };
  ApartFromOwnGraphs(unregister).IgnoreError();
}

}  // namespace detshare::cuda
