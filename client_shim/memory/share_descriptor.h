// File descriptors that name memory of the daemon for other processes. Each is a sealed file
// without a name that holds a token. Processes pass it on as they pass CUDA's own descriptors, over
// a unix socket or to a child.
#pragma once

#include <cstdint>

#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/virtual_memory.h"

namespace detshare::shim {

enum class ShareKind : uint32_t { kPhysicalMemory = 1, kMemoryPool = 2 };

// Makes a descriptor that the caller closes, like one of CUDA's. CUDA_ERROR_OPERATING_SYSTEM: the
// process can have no more descriptors.
CUresult MakeShareDescriptor(ShareKind kind, const wire::ShareToken& token, int* descriptor);
// Reads the token and leaves the descriptor as it is. CUDA_ERROR_INVALID_VALUE: any other
// descriptor.
CUresult ReadShareDescriptor(ShareKind kind, int descriptor, wire::ShareToken* token);

}  // namespace detshare::shim
