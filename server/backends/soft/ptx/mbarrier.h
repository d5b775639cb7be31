// What handlers of other instructions do to mbarrier objects.
#pragma once

#include "server/backends/soft/ptx/memory_access.h"

namespace detshare::soft::ptx {

// Tells the mbarrier at a shared address that `bytes` bytes have arrived. Raises the fault of lane
// `lane` and returns false if there can be no mbarrier.
bool CompleteBytes(Context& c, const Instr& in, uint32_t lane, uint64_t address, uint32_t bytes);

}  // namespace detshare::soft::ptx
