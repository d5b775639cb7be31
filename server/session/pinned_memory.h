// The pinned host memory of one session: files that the client maps, too, and that all devices of
// the session reach.
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

  // Memory with any contents. No context owns it: no client can free it. CUDA_ERROR_OUT_OF_MEMORY,
  // or the device's error.
  absl::StatusOr<Allocation> Allocate(uint64_t bytes);
  // A part of a client's own file; `fd` stays the caller's.
  absl::StatusOr<Allocation> Adopt(int fd, uint64_t offset, uint64_t bytes);
  // No work touches it any more.
  void Free(uint64_t address);

  // The client of the context may free the allocation.
  void Own(uint64_t address, ContextId context) { owners_[address] = context; }
  // Whether a context owned it.
  bool Disown(uint64_t address);
  // Frees what the context owns; its work is complete.
  void FreeOf(ContextId context);

  uint64_t bytes_in_use() const { return bytes_in_use_.load(std::memory_order_relaxed); }
  // The client truncated a file.
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
