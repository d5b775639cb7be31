// Memory of the software GPU's card. It consists of pages of files without names, so that a page
// can be mapped at several addresses.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "coroutine_runtime/physical_memory.h"
#include "proto/mutex.h"
#include "server/backends/soft/memory_budget.h"

namespace detshare::soft {

// A sparse file: unwritten bytes are zero and take no memory. Any thread.
class MemoryFile {
 public:
  // Creates a file of `bytes` bytes, which may be 0.
  static absl::StatusOr<std::shared_ptr<MemoryFile>> Create(uint64_t bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Adds `bytes` bytes and returns their offset. Offsets are never reused: a file can grow without
  // limit, because discarded pages take no memory.
  absl::StatusOr<uint64_t> Grow(uint64_t bytes);
  // Zeroes whole pages and gives them back to the system.
  void Discard(uint64_t offset, uint64_t bytes);
  // Maps whole pages at `address`, readable and writable. With `replace` they replace the mappings
  // there. Without it the call fails when a mapping is there.
  bool MapAt(uint64_t address, uint64_t bytes, uint64_t offset, bool replace) const;

 private:
  MemoryFile(int fd, uint64_t bytes) : fd_(fd), bytes_(bytes) {}

  const int fd_;
  Mutex mutex_;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_);
};

class SoftPhysicalMemory final : public PhysicalMemory {
 public:
  // Creates memory in new pages of `file`. It counts in `budget` until it is destroyed.
  static absl::StatusOr<std::shared_ptr<SoftPhysicalMemory>> Create(
      std::shared_ptr<MemoryFile> file, uint64_t bytes, MemoryBudget& budget);
  // Refers to pages that belong to a session. They count for that session.
  SoftPhysicalMemory(std::shared_ptr<MemoryFile> file, uint64_t offset, uint64_t bytes)
      : SoftPhysicalMemory(std::move(file), offset, bytes, nullptr) {}
  ~SoftPhysicalMemory() override;

  uint64_t bytes() const override { return bytes_; }
  bool MapAt(uint64_t address, uint64_t bytes) const {
    return file_->MapAt(address, bytes, offset_, /*replace=*/true);
  }

 private:
  SoftPhysicalMemory(std::shared_ptr<MemoryFile> file, uint64_t offset, uint64_t bytes,
                     MemoryBudget* budget)
      : file_(std::move(file)), offset_(offset), bytes_(bytes), budget_(budget) {}

  const std::shared_ptr<MemoryFile> file_;
  const uint64_t offset_, bytes_;
  MemoryBudget* const budget_;  // null for pages of a session
};

}  // namespace detshare::soft
