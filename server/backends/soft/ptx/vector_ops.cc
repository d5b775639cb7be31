#include "server/backends/soft/ptx/vector_ops.h"

#include "server/backends/soft/ptx/matrix_math.h"
#include "server/backends/soft/ptx/warp_addresses.h"

namespace detshare::soft::ptx {

namespace {

// Whether this CPU executes the code that vector_lanes.h makes for AVX2.
bool HasAvx2() {
#ifdef __clang__
  // Clang ignores the pragma in vector_lanes.h, so both compilations are for any CPU.
  return false;
#else
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
                          __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt");
  return has;
#endif
}

// The same for the code for AVX-512.
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
}

}  // namespace

ExecFn SelectVectorOp(VectorOp op, Type type, VectorFlags flags, Compare compare) {
  return HasAvx2() ? avx2::Select(op, type, flags, compare)
                   : base::Select(op, type, flags, compare);
}

std::vector<const MatrixMath*> AllMatrixMath() {
  std::vector<const MatrixMath*> all;
  if (HasAvx512()) all.push_back(&avx512::kMatrixMath);
  if (HasAvx2()) all.push_back(&avx2::kMatrixMath);
  all.push_back(&base::kMatrixMath);
  return all;
}

const AddressMath& SelectAddressMath() {
  if (HasAvx512()) return avx512::kAddressMath;
  return HasAvx2() ? avx2::kAddressMath : base::kAddressMath;
}

}  // namespace detshare::soft::ptx
