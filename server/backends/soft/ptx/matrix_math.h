// Products of small matrices, and conversions between registers and doubles. The code is compiled
// three times, for any x86-64 CPU, for CPUs with AVX2 and FMA, and for those with AVX-512
// (vector_lanes.h). All return the same bits.
#pragma once

#include <vector>

#include "server/backends/soft/ptx/instr.h"

namespace detshare::soft::ptx {

constexpr uint32_t kMaxMatrixSide = 32;

// Row-major, without gaps. Doubles hold integers of up to 32 bits and all narrower floats exactly.
using MatrixElements = double[kMaxMatrixSide * kMaxMatrixSide];

struct MatrixMath {
  // d += a b, where a is m by k and b is k by n. Each element of d is a chain of fused
  // multiply-adds in double precision, in the order of k.
  void (*multiply_add)(const double* a, const double* b, double* d, uint32_t m, uint32_t n,
                       uint32_t k);
  // Converts element `j` of a register of all lanes.
  void (*decode)(Type type, const void* reg, uint32_t j, double* values);
  // The reverse: rounds to nearest. `saturate` bounds integers.
  void (*encode)(Type type, const double* values, uint32_t j, bool saturate, void* reg);
};

// The codes that this machine's CPU executes, the fastest one first. Never empty.
std::vector<const MatrixMath*> AllMatrixMath();

namespace avx512 {
extern const MatrixMath kMatrixMath;
}
namespace avx2 {
extern const MatrixMath kMatrixMath;
}
namespace base {
extern const MatrixMath kMatrixMath;
}

}  // namespace detshare::soft::ptx
