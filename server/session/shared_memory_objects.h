// Memory that sessions show to each other. Whoever may see it gets a token, random enough that
// nobody guesses it, and hands it to another process of the same user; that process shows it to the
// daemon.
//
// A token does not keep memory alive: it is good as long as some session holds or maps the memory.
//
// Any thread.
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

// What a token stands for.
struct SharedMemory {
  std::shared_ptr<PhysicalMemory> memory;
  Device* device = nullptr;  // where it is
  uint64_t offset = 0;       // the part that is meant
  uint64_t bytes = 0;
};

class SharedMemoryObjects {
 public:
  // A new token. CUDA_ERROR_OUT_OF_MEMORY when there are too many.
  absl::StatusOr<ShareTokenValue> Export(uid_t owner, const SharedMemory& memory);
  // CUDA_ERROR_INVALID_VALUE for a token that stands for nothing, or for another user's memory.
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
  size_t drop_at_ = 64;  // guarded by mutex_: entries that make a look worth it
};

}  // namespace detshare
