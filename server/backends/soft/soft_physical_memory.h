// Memory of the software GPU's card: pages of files that have no name, so that one page can be
// mapped at several addresses.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "coroutine_runtime/physical_memory.h"

namespace detshare::soft {

// The card's memory, divided among sessions. Any thread.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t total) : total_(total) {}
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes);
  uint64_t total() const { return total_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const uint64_t total_;
  std::atomic<uint64_t> used_{0};  // relaxed: a sum that publishes nothing
};

// A sparse file: bytes that nobody has written are zero and take no memory. Any thread.
class MemoryFile {
 public:
  // `bytes` to begin with; 0 is fine.
  static absl::StatusOr<std::shared_ptr<MemoryFile>> Create(uint64_t bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // The offset of `bytes` more bytes. Offsets are not used again: a file can grow for ever.
  absl::StatusOr<uint64_t> Grow(uint64_t bytes);
  // Whole pages become zero and are given back to the system.
  void Discard(uint64_t offset, uint64_t bytes);
  // Maps whole pages at `address`, readable and writable, in the place of what is there
  // (`replace`), or where nothing is.
  bool MapAt(uint64_t address, uint64_t bytes, uint64_t offset, bool replace) const;

 private:
  MemoryFile(int fd, uint64_t bytes) : fd_(fd), bytes_(bytes) {}

  const int fd_;
  std::mutex mutex_;
  uint64_t bytes_;  // guarded by mutex_
};

class SoftPhysicalMemory final : public PhysicalMemory {
 public:
  // Memory of its own, paid for by `budget`, in new pages of `file`.
  static absl::StatusOr<std::shared_ptr<SoftPhysicalMemory>> Create(
      std::shared_ptr<MemoryFile> file, uint64_t bytes, MemoryBudget& budget);
  // Pages that belong to somebody else, who pays for them.
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
  MemoryBudget* const budget_;  // null: not its own
};

}  // namespace detshare::soft
