// File descriptors that name memory of the daemon's for other processes: sealed files without a
// name that hold a token. They travel as CUDA's own do, over a unix socket or to a child.
#pragma once

#include <cstdint>

#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/virtual_memory.h"

namespace detshare::shim {

enum class ShareKind : uint32_t { kPhysicalMemory = 1, kMemoryPool = 2 };

// Closed by whoever gets it, like CUDA's. CUDA_ERROR_OPERATING_SYSTEM when there are no more.
CUresult MakeShareDescriptor(ShareKind kind, const wire::ShareToken& token, int* descriptor);
// Leaves the descriptor as it is. CUDA_ERROR_INVALID_VALUE for any other descriptor.
CUresult ReadShareDescriptor(ShareKind kind, int descriptor, wire::ShareToken* token);

}  // namespace detshare::shim
