// Memory that sessions share. The exporting process gets a token that is too random to guess. It
// passes the token to another process of the same user, which presents it to the daemon.
//
// A token does not keep the memory alive. It is valid as long as any session holds or maps the
// memory.
//
// A session that exports memory again gets the same token, so the number of tokens is bounded by
// what sessions hold: for cuMemCreate's memory by the memory of the devices, for IPC handles by
// IpcMemory::kLimit for each session.
//
// Threading: any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/physical_memory.h"
#include "proto/mutex.h"

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
  static constexpr size_t kMaxTokens = 1 << 20;

  explicit SharedMemoryObjects(size_t max_tokens = kMaxTokens) : max_tokens_(max_tokens) {}

  // Returns the token of this part of the memory. Every call returns the same token, as long as the
  // memory lives. CUDA_ERROR_OUT_OF_MEMORY when there are too many tokens.
  absl::StatusOr<ShareTokenValue> Export(uid_t owner, const SharedMemory& memory);
  // CUDA_ERROR_INVALID_VALUE for an unknown token and for another user's memory.
  absl::StatusOr<SharedMemory> Import(uid_t importer, const ShareTokenValue& token);

 private:
  // The memory's address, the offset and the bytes.
  using Part = std::tuple<const PhysicalMemory*, uint64_t, uint64_t>;
  struct Entry {
    uid_t owner = 0;
    std::weak_ptr<PhysicalMemory> memory;
    Device* device = nullptr;
    uint64_t offset = 0, bytes = 0;
  };

  void DropEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_tokens_;
  Mutex mutex_;
  std::map<ShareTokenValue, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<Part, ShareTokenValue> tokens_ ABSL_GUARDED_BY(mutex_);  // tokens of entries_
  size_t drop_at_ ABSL_GUARDED_BY(mutex_) = 64;  // number of entries that triggers DropEnded()
};

}  // namespace detshare
