// Matrix instructions.
#include "server/backends/soft/ptx/lower.h"

namespace detshare::soft::ptx {

void Lowering::LowerMatrix() { FailUnknown(); }

}  // namespace detshare::soft::ptx
