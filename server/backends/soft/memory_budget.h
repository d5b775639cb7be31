// Counts how much of the software GPU's card is in use, by all processes that share it.
#pragma once

#include <cstdint>

#include "server/backends/soft/card_processes.h"

namespace detshare::soft {

// Threading: any thread.
class MemoryBudget {
 public:
  // A card of `total` bytes. `processes` outlives the object; null: this process has it alone.
  explicit MemoryBudget(uint64_t total, const CardProcesses* processes = nullptr)
      : total_(total), processes_(processes != nullptr ? *processes : alone_) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Returns whether the bytes fit. Of two processes that take the last bytes at the same time, both
  // may be refused.
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes);
  uint64_t total() const { return total_; }
  // Bytes of all processes.
  uint64_t used() const;

 private:
  std::atomic<uint64_t>& own() const { return processes_.own().used; }
  uint64_t UsedByOthers() const;

  const uint64_t total_;
  const CardProcesses alone_;
  const CardProcesses& processes_;
};

}  // namespace detshare::soft
