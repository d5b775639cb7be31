#include "server/backends/soft/ptx/vector_ops.h"

namespace detshare::soft::ptx {

ExecFn SelectVectorOp(VectorOp op, Type type, VectorFlags flags, Compare compare) {
#ifdef __clang__
  // Clang ignores the pragma in vector_lanes.h, so both compilations are for any CPU.
  constexpr bool kAvx2 = false;
#else
  static const bool kAvx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                            __builtin_cpu_supports("lzcnt");
#endif
  return kAvx2 ? avx2::Select(op, type, flags, compare) : base::Select(op, type, flags, compare);
}

}  // namespace detshare::soft::ptx
