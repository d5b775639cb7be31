// What a kernel costs.
#pragma once

#include <array>
#include <cstdint>

namespace detshare::soft::ptx {

// Deterministic costs of one unit: for kernels without races they depend on the inputs alone. An
// "instruction" is one issued for a warp, whatever the number of active threads.
struct CostCounters {
  enum Class : uint8_t {
    kControl,  // branches, calls, votes, shuffles, fences
    kInteger,  // integer, logic, moves, conversions, predicates
    kFloat32,  // f32, f16 and bf16 arithmetic
    kFloat64,
    kSpecial,       // division, roots, transcendental functions
    kSharedMemory,  // shared and local memory
    kGlobalMemory,  // global, constant and generic memory
    kAtomic,
    kMatrix,  // mma
    kClassCount
  };
  std::array<uint64_t, kClassCount> instructions{};
  uint64_t global_bytes_read = 0;  // bytes asked for by the active threads
  uint64_t global_bytes_written = 0;
  uint64_t global_sectors = 0;  // 32-byte pieces touched, counted per instruction
  uint64_t barriers = 0;        // completed block barriers
  uint64_t sleep_ns = 0;        // nanosleep, longest warp-wise sum

  uint64_t TotalInstructions() const;
  void Add(const CostCounters& other);
};

}  // namespace detshare::soft::ptx
