// The state of the running split for the handlers. Most handlers need only the registers and the
// lanes; unit.h has the rest.
#pragma once

#include <cstdint>

#include "server/backends/soft/ptx/instr.h"

namespace detshare::soft::ptx {

struct Block;
struct Frame;
struct Unit;
struct Warp;

struct Context {
  const Instr* pc = nullptr;  // next instruction
  uint8_t* regs = nullptr;
  const uint8_t* consts = nullptr;
  uint32_t mask = 0;
  int64_t budget = 0;  // instructions left in this turn; a handler sets 0 to end the turn
  Frame* frame = nullptr;
  Warp* warp = nullptr;
  Block* block = nullptr;
  Unit* unit = nullptr;
  int16_t split = -1;       // -1: the split has ended or waits, and its state is saved
  int64_t turn_length = 0;  // the budget at the start of the turn
  int64_t unused = 0;       // the rest of the budget when the turn ended early
  uint32_t turn_polls = 0;

  uint8_t* shared = nullptr;
  uint32_t shared_bytes = 0;
  uint8_t* local = nullptr;
  uint32_t stack_bytes = 0;
  const uint8_t* kernel_params = nullptr;
  uint32_t kernel_param_bytes = 0;

  // The last range that allowed a global access.
  uint64_t range_begin = 1;
  uint64_t range_end = 0;
  bool range_writable = false;

  CostCounters* counters = nullptr;

  // Special registers for native code, each with x, y and z; thread_index has 32 lanes of each.
  const uint32_t* block_size = nullptr;
  const uint32_t* grid_size = nullptr;
  const uint32_t* block_id = nullptr;
  const uint32_t* thread_index = nullptr;

  template <class T>
  const T* Src(int32_t operand) const {
    const uint8_t* base = operand < 0 ? consts : regs;
    return reinterpret_cast<const T*>(base + (static_cast<uint32_t>(operand) & 0x7fffffffu));
  }
  template <class T>
  T* Dst(int32_t operand) const {
    return reinterpret_cast<T*>(regs + operand);
  }
  uint32_t Pred(int32_t operand) const { return *Src<uint32_t>(operand); }
  void SetPred(int32_t operand, uint32_t value, uint32_t lanes) const {
    uint32_t* p = Dst<uint32_t>(operand);
    *p = (*p & ~lanes) | (value & lanes);
  }
};

// Ends the turn after the current instruction.
inline void EndTurn(Context& c) {
  c.unused += c.budget;
  c.budget = 0;
}

inline uint32_t FirstLane(uint32_t mask) { return static_cast<uint32_t>(__builtin_ctz(mask)); }
inline uint32_t LaneCount(uint32_t mask) { return static_cast<uint32_t>(__builtin_popcount(mask)); }

// Calls f(lane) for each lane of `mask`, lowest first.
template <class F>
inline void ForEachLane(uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(FirstLane(mask));
}

// The same in any order. Full warps have a loop of their own, which the compiler can vectorise.
template <class F>
inline void ForWarpLanes(uint32_t mask, F f) {
  if (mask == kFullMask) {
    for (uint32_t i = 0; i < kLanes; ++i) f(i);
  } else {
    ForEachLane(mask, f);
  }
}

}  // namespace detshare::soft::ptx
