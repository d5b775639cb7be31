#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "server/backends/soft/ptx/unit.h"
#include "server/backends/soft/ptx/vector_ops.h"

// Only what follows may use these instructions: code of headers included above is shared with files
// built for any CPU.
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt")

namespace detshare::soft::ptx {
namespace avx2 {
#include "server/backends/soft/ptx/vector_ops_impl.inc"
}  // namespace avx2
}  // namespace detshare::soft::ptx
