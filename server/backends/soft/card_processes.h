// What the processes that share the card of a software GPU know of each other, as the engines of a
// daemon share one real GPU:
//
//     file: [places][words of process 0][process 1]...    each process locks its byte while it lives
//
// A process that has ended has no words any more, because its lock is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace detshare::soft {

// Threading: any thread, after Join().
class CardProcesses {
 public:
  // Sequentially consistent: a process publishes its words before it reads those of the others.
  struct Words {
    std::atomic<uint64_t> used{0};    // MemoryBudget
    std::atomic<uint32_t> groups{0};  // OrdinaryGroup
  };

  // This process has the card alone.
  CardProcesses() = default;
  ~CardProcesses();
  CardProcesses(const CardProcesses&) = delete;
  CardProcesses& operator=(const CardProcesses&) = delete;

  // Shares the card with the processes that do so with the same file. Called once, before all else.
  // Returns ResourceExhausted if too many processes share it, and the errors of the file.
  absl::Status Join(const std::string& file);

  Words& own() const { return *own_; }
  // Calls `see` for each other process that has words which are not 0.
  void ForEachOther(absl::FunctionRef<void(const Words&)> see) const;

 private:
  static constexpr uint32_t kMaxProcesses = 512;
  struct Table {
    std::atomic<uint32_t> places;  // the words from here on were never used
    Words words[kMaxProcesses];
  };

  // Locks the byte of a place if no process has it.
  bool TryLock(uint32_t place) const;
  void Unlock(uint32_t place) const;
  static void Clear(Words& words);

  int fd_ = -1;             // -1: no other process has the card
  Table* table_ = nullptr;  // null: likewise
  uint32_t place_ = 0;      // of this process
  mutable Words alone_;
  Words* own_ = &alone_;
};

}  // namespace detshare::soft
