#include "server/session/pinned_memory.h"

#include <utility>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/base/logging.h"
#include "server/session/session_device.h"

namespace detshare {
namespace {

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

PinnedMemory::PinnedMemory(std::vector<SessionDevice>& devices,
                           std::unique_ptr<PinnedWindow> window, std::string label)
    : devices_(devices), window_(std::move(window)), label_(std::move(label)) {}

absl::StatusOr<PinnedMemory::Allocation> PinnedMemory::Allocate(uint64_t bytes) {
  DETSHARE_ASSIGN_OR_RETURN(const Allocation allocation,
                            AllocateWithRoom([&] { return window_->Allocate(bytes); }));
  if (allocation.fresh) DETSHARE_RETURN_IF_ERROR(RegisterNew(allocation));
  Count();
  return allocation;
}

absl::StatusOr<PinnedMemory::Allocation> PinnedMemory::Adopt(int fd, uint64_t offset,
                                                             uint64_t bytes, uint64_t wanted) {
  DETSHARE_ASSIGN_OR_RETURN(const Allocation allocation, AllocateWithRoom([&] {
                              return window_->Adopt(fd, offset, bytes, wanted);
                            }));
  DETSHARE_RETURN_IF_ERROR(RegisterNew(allocation));
  Count();
  return allocation;
}

void PinnedMemory::Free(uint64_t address) {
  DropAll(window_->Free(address));
  Count();
}

bool PinnedMemory::Disown(uint64_t address) {
  return window_->Find(address) != nullptr && owners_.erase(address) != 0;
}

void PinnedMemory::FreeOf(ContextId context) {
  std::vector<uint64_t> addresses;
  for (const auto& [address, owner] : owners_) {
    if (owner == context) addresses.push_back(address);
  }
  for (const uint64_t address : addresses) {
    owners_.erase(address);
    Free(address);
  }
}

// Calls `allocate()`. When there is no room, frees the unused files that the window keeps and calls
// it again, so that memory the program has freed does not make its allocations fail.
absl::StatusOr<PinnedMemory::Allocation> PinnedMemory::AllocateWithRoom(
    absl::FunctionRef<absl::StatusOr<Allocation>()> allocate) {
  absl::StatusOr<Allocation> allocation = allocate();
  if (!allocation.ok() && CudaResultOf(allocation.status()) == kCudaErrorOutOfMemory) {
    if (const std::vector<uint64_t> kept = window_->FreeKept(); !kept.empty()) {
      DropAll(kept);
      allocation = allocate();
    }
  }
  if (!allocation.ok())
    return CudaError(kCudaErrorOutOfMemory, std::string(allocation.status().message()));
  return allocation;
}

// Registers the memory with all devices of the session, or with none on an error.
absl::Status PinnedMemory::Register(uint64_t address, uint64_t bytes) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    absl::Status status = devices_[i].space->RegisterHost(Pointer(address), bytes);
    if (status.ok()) continue;
    for (size_t done = 0; done < i; ++done)
      (void)devices_[done].space->UnregisterHost(Pointer(address));
    return status;
  }
  return absl::OkStatus();
}

// Registers a new allocation. Drops the allocation on an error.
absl::Status PinnedMemory::RegisterNew(const Allocation& allocation) {
  absl::Status status = Register(allocation.address, allocation.file_bytes);
  if (!status.ok()) window_->Drop(allocation.address);
  return status;
}

// Unregisters allocations that the window has released, and unmaps them.
void PinnedMemory::DropAll(const std::vector<uint64_t>& addresses) {
  for (const uint64_t address : addresses) {
    for (SessionDevice& device : devices_) {
      if (absl::Status status = device.space->UnregisterHost(Pointer(address)); !status.ok())
        LogWarning(label_, ": unregistering pinned memory: ", std::string(status.message()));
    }
    window_->Drop(address);
  }
}

void PinnedMemory::Count() {
  bytes_in_use_.store(window_->bytes_in_use(), std::memory_order_relaxed);
}

}  // namespace detshare
