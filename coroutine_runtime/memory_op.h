// Stream operations on words of memory: waits, writes, barriers. The numbers are CUDA's.
#pragma once

#include <cstdint>
#include <optional>

namespace detshare {

struct MemoryOp {
  // CUstreamBatchMemOpType
  enum Operation : uint32_t {
    kWait32 = 1,
    kWrite32 = 2,
    kFlushRemoteWrites = 3,
    kWait64 = 4,
    kWrite64 = 5,
    kBarrier = 6,
  };
  // The lower bits of CUstreamWaitValue_flags
  enum Condition : uint32_t { kGreaterOrEqual = 0, kEqual = 1, kAnd = 2, kNor = 3 };
  static constexpr uint32_t kConditionMask = 3;
  static constexpr uint32_t kWaitFlush = 1u << 30;  // CU_STREAM_WAIT_VALUE_FLUSH

  uint32_t operation = 0;
  uint32_t flags = 0;
  uint64_t address = 0;
  uint64_t value = 0;

  friend bool operator==(const MemoryOp&, const MemoryOp&) = default;

  bool is_wait() const { return operation == kWait32 || operation == kWait64; }
  bool is_write() const { return operation == kWrite32 || operation == kWrite64; }
  // The size of the word that it waits for or writes; 0 if it accesses none.
  int bytes() const {
    if (operation == kWait32 || operation == kWrite32) return 4;
    return operation == kWait64 || operation == kWrite64 ? 8 : 0;
  }

  // For a wait: whether it ends when the word is `word`.
  bool Satisfied(uint64_t word) const {
    const bool narrow = bytes() == 4;
    const uint64_t mask = narrow ? UINT32_MAX : UINT64_MAX;
    switch (flags & kConditionMask) {
      case kGreaterOrEqual:  // cyclic
        return narrow ? static_cast<int32_t>(static_cast<uint32_t>(word - value)) >= 0
                      : static_cast<int64_t>(word - value) >= 0;
      case kEqual:
        return ((word ^ value) & mask) == 0;
      case kAnd:
        return (word & value & mask) != 0;
      default:  // kNor
        return (~(word | value) & mask) != 0;
    }
  }
  // For a wait: a word that ends it; nullopt if no word does.
  std::optional<uint64_t> Satisfying() const {
    for (const uint64_t word : {value, uint64_t{0}}) {
      if (Satisfied(word)) return word;
    }
    return std::nullopt;
  }
};

}  // namespace detshare
