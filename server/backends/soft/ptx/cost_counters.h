// The costs of a kernel.
#pragma once

#include <array>
#include <cstdint>

namespace detshare::soft::ptx {

// The costs of one unit. They are deterministic: without races they depend only on the inputs. An
// instruction counts once for a warp, whatever its number of active threads.
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
  uint64_t global_bytes_read = 0;  // bytes that the active threads read
  uint64_t global_bytes_written = 0;
  uint64_t global_sectors = 0;  // accessed 32-byte sectors, counted for each instruction
  uint64_t barriers = 0;        // completed block barriers
  uint64_t sleep_ns = 0;        // nanosleep: the longest sum of a warp

  uint64_t TotalInstructions() const;
  void Add(const CostCounters& other);
};

}  // namespace detshare::soft::ptx
