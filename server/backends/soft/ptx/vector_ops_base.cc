#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "server/backends/soft/ptx/unit.h"
#include "server/backends/soft/ptx/vector_ops.h"

namespace detshare::soft::ptx {
namespace base {
#include "server/backends/soft/ptx/vector_ops_impl.inc"
}  // namespace base
}  // namespace detshare::soft::ptx
