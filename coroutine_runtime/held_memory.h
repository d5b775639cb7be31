// Whether a session still has the memory that an operation accesses, as AddressSpace::Contains() says. It
// had the memory when the operation came: the client may have freed it before the device gets it.
//
// Arrays are not looked at. Threading: as AddressSpace::Contains().
#pragma once

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/memory_op.h"

namespace detshare {

bool HoldsMemoryOf(const AddressSpace& space, const CopyRequest& copy);
bool HoldsMemoryOf(const AddressSpace& space, const FillRequest& fill);
bool HoldsMemoryOf(const AddressSpace& space, const MemoryOp& operation);

}  // namespace detshare
