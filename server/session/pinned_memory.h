// The pinned host memory of one session. It lies in files that the client maps as well. All devices
// of the session can access it.
//
// Threading: the session's worker; bytes_in_use() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ring_abi.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

struct SessionDevice;

class PinnedMemory {
 public:
  using Allocation = PinnedWindow::Allocation;

  // `label` names the session in the log.
  PinnedMemory(std::vector<SessionDevice>& devices, std::unique_ptr<PinnedWindow> window,
               std::string label);
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // The contents are undefined. No context owns the allocation, so no client can free it until
  // Own(). CUDA_ERROR_OUT_OF_MEMORY, or the device's error.
  absl::StatusOr<Allocation> Allocate(uint64_t bytes);
  // Makes a part of a client's own file pinned memory, at `wanted` if that is possible. The caller keeps
  // `fd`. Errors as above.
  absl::StatusOr<Allocation> Adopt(int fd, uint64_t offset, uint64_t bytes, uint64_t wanted);
  // No work may use the allocation any more.
  void Free(uint64_t address);

  // Makes the context the owner of the allocation. Its client may then free it.
  void Own(uint64_t address, ContextId context) { owners_[address] = context; }
  // Removes the owner. Returns false when no context owned the allocation.
  bool Disown(uint64_t address);
  // Frees all allocations that the context owns. The context's work must be complete.
  void FreeOf(ContextId context);

  uint64_t bytes_in_use() const { return bytes_in_use_.load(std::memory_order_relaxed); }
  // Whether the client truncated a file.
  bool damaged() const { return window_->damaged(); }

 private:
  absl::StatusOr<Allocation> AllocateWithRoom(
      absl::FunctionRef<absl::StatusOr<Allocation>()> allocate);
  absl::Status Register(uint64_t address, uint64_t bytes);
  absl::Status RegisterNew(const Allocation& allocation);
  void DropAll(const std::vector<uint64_t>& addresses);
  void Count();

  std::vector<SessionDevice>& devices_;
  const std::unique_ptr<PinnedWindow> window_;
  const std::string label_;
  absl::flat_hash_map<uint64_t, ContextId> owners_;
  std::atomic<uint64_t> bytes_in_use_{0};  // relaxed: for reports only
};

}  // namespace detshare
