// The managed memory of one session whose pages move (coroutine_runtime/managed_memory.h).
//
// The client connects to the socket `managed` in the session's directory. With the first allocation
// it gets the descriptor there, which it maps. The connection stays open as long as the session's work
// may use the memory. A process of the client that keeps the client's mappings until then waits for
// its end (client_shim/memory/mapping_keeper.h).
//
// Threading: the session's worker; bytes_in_use() from any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/managed_memory.h"
#include "coroutine_runtime/quota.h"
#include "proto/ring_abi.h"
#include "server/shared_memory/owner.h"

namespace detshare {

struct SessionDevice;

class ManagedRanges {
 public:
  // `directory` exists by the first Open().
  ManagedRanges(std::vector<SessionDevice>& devices, std::string directory, Owner owner)
      : devices_(devices), directory_(std::move(directory)), owner_(owner) {}
  ~ManagedRanges();  // as End()
  ManagedRanges(const ManagedRanges&) = delete;
  ManagedRanges& operator=(const ManagedRanges&) = delete;

  // Makes the socket, if the devices have managed memory. If that fails, the log says why, and the
  // client gets none.
  void Open();

  // Allocates memory, charged to the device. Its bytes are zero. No context owns the allocation, so no
  // client can free it until Own(). The client may map it after the reply. CUDA_ERROR_NOT_SUPPORTED if
  // there is no managed memory or no connection of the client; CUDA_ERROR_OUT_OF_MEMORY, or the
  // quota's error.
  absl::StatusOr<ManagedMemory::Range> Allocate(SessionDevice& device, uint64_t bytes);
  // Makes the context the owner of the allocation that begins there. Its client may then free it.
  void Own(uint64_t address, ContextId context);
  // Whether [address, address + bytes) lies in an allocation.
  bool Contains(uint64_t address, uint64_t bytes) const;
  // Removes the owner of the allocation that begins there. Returns false if there is none.
  bool Disown(uint64_t address);
  // Frees an allocation without an owner. The client has unmapped it, and no work uses it.
  void Free(uint64_t address);
  // Frees all allocations that the context owns. Its work is complete.
  void FreeOf(ContextId context);
  // Carries out CUmem_advise number `advice`. Errors as ManagedMemory::Advise().
  absl::Status Advise(uint64_t address, uint64_t bytes, int advice, ManagedPlace place);

  // The session's work is complete, and its address spaces still exist. Ends the connection, and
  // frees all. Nothing can be allocated afterwards.
  void End();

  uint64_t bytes_in_use() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Allocation {
    ManagedMemory::Range range;
    ContextId context = 0;  // 0: no owner
    QuotaCharge charge;
  };
  using Allocations = std::map<uint64_t, Allocation>;

  // Gives the descriptor to the client that has connected, unless it has it. Does not wait.
  absl::Status Introduce();
  void Drop(Allocations::iterator allocation);

  std::vector<SessionDevice>& devices_;
  const std::string directory_;
  const Owner owner_;
  ManagedMemory* memory_ = nullptr;  // null: there is none
  int listener_ = -1, client_ = -1;
  Allocations allocations_;         // by address
  std::atomic<uint64_t> bytes_{0};  // relaxed: for reports only
};

}  // namespace detshare
