// Counts how much of the software GPU's card is in use.
//
// Several processes can have one card, as the engines of a daemon have one real GPU:
//
//     file: [what process 0 uses][process 1]...      each process locks its byte while it lives
//
// The memory of a process that has ended is free again, because its lock is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace detshare::soft {

// Threading: any thread.
class MemoryBudget {
 public:
  // A card of `total` bytes that this process has alone.
  explicit MemoryBudget(uint64_t total) : total_(total) {}
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Shares the card with the processes that do so with the same file. Called once, before all else.
  // Returns ResourceExhausted if too many processes share it, and the errors of the file.
  absl::Status Share(const std::string& file);

  // Returns whether the bytes fit. Of two processes that take the last bytes at the same time, both
  // may be refused.
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes);
  uint64_t total() const { return total_; }
  // Bytes of all processes.
  uint64_t used() const;

 private:
  static constexpr int kMaxProcesses = 512;
  // Bytes that the processes use. Sequentially consistent: a process publishes what it takes before
  // it reads what the others have.
  struct Table {
    std::atomic<uint64_t> used[kMaxProcesses];
  };

  // Locks the byte of a place if no process has it.
  bool TryLock(int place) const;
  void Unlock(int place) const;
  uint64_t UsedByOthers() const;

  const uint64_t total_;
  int fd_ = -1;             // -1: no other process has the card
  Table* table_ = nullptr;  // null: likewise
  int place_ = 0;           // of this process
  std::atomic<uint64_t> alone_{0};
  std::atomic<uint64_t>* own_ = &alone_;
};

}  // namespace detshare::soft
