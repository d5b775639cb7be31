// Operations of streams on words of memory: translates the program's structs.
#pragma once

#include <cstdint>

#include "client_shim/transport/session.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/stream_memory_op.h"

namespace detshare::shim {

// The two generations of these functions allow different operations.
enum class MemoryOpVersion { kFirst, kSecond };

// Checks `count` operations (at most wire::kMaxStreamMemoryOps) for `device` as the driver does,
// and writes them to `operations`. CUDA_ERROR_NOT_SUPPORTED: the device's attributes do not promise
// the operation.
CUresult TranslateMemoryOps(uint16_t device, const CUstreamBatchMemOpParams* parameters,
                            uint32_t count, MemoryOpVersion version,
                            wire::StreamMemoryOp* operations);

}  // namespace detshare::shim
