// Operations of streams on words of memory, as programs name them.
#pragma once

#include <cstdint>

#include "client_shim/transport/session.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/wire/stream_memory_op.h"

namespace detshare::shim {

// The two generations of these functions differ in what they allow.
enum class MemoryOpVersion { kFirst, kSecond };

// Checks `count` operations (at most wire::kMaxStreamMemoryOps) for `device` as the driver does
// and writes them to `operations`. CUDA_ERROR_NOT_SUPPORTED for what the device's attributes do not
// claim.
CUresult TranslateMemoryOps(uint16_t device, const CUstreamBatchMemOpParams* parameters,
                            uint32_t count, MemoryOpVersion version,
                            wire::StreamMemoryOp* operations);

}  // namespace detshare::shim
