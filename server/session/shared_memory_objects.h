// Memory that sessions share. The exporting process gets a token that is too random to guess. It
// passes the token to another process of the same user, which presents it to the daemon.
//
// A token does not keep the memory alive. It is valid as long as any session holds or maps the
// memory.
//
// Threading: any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/physical_memory.h"

namespace detshare {

using ShareTokenValue = std::array<uint8_t, 16>;

// The memory that a token identifies.
struct SharedMemory {
  std::shared_ptr<PhysicalMemory> memory;
  Device* device = nullptr;  // the device that holds the memory
  uint64_t offset = 0;       // of the shared part, in bytes
  uint64_t bytes = 0;
};

class SharedMemoryObjects {
 public:
  // Returns a new token. CUDA_ERROR_OUT_OF_MEMORY when there are too many.
  absl::StatusOr<ShareTokenValue> Export(uid_t owner, const SharedMemory& memory);
  // CUDA_ERROR_INVALID_VALUE for an unknown token and for another user's memory.
  absl::StatusOr<SharedMemory> Import(uid_t importer, const ShareTokenValue& token);

 private:
  struct Entry {
    uid_t owner = 0;
    std::weak_ptr<PhysicalMemory> memory;
    Device* device = nullptr;
    uint64_t offset = 0, bytes = 0;
  };

  void DropEnded();

  std::mutex mutex_;
  std::map<ShareTokenValue, Entry> entries_;  // guarded by mutex_
  size_t drop_at_ = 64;  // guarded by mutex_: number of entries that triggers DropEnded()
};

}  // namespace detshare
