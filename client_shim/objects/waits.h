// Waits for fences and for all work of a context.
#pragma once

#include <cstdint>

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"
#include "proto/wire/common.h"

namespace detshare::shim {

// Polls a fence for as long as the daemon's grant says, or for a moment when the program has asked
// for waits that block. Acquire: what it stands for happened
// before.
bool SpinForFence(FenceIndex index, uint64_t value, bool blocking = false);

// The next signal of the thread's own fence, which only this thread waits for. False when there are
// no fences left.
bool ThreadFence(wire::Signal* signal);

// Waits for all work of the context. The sticky error, when there is one.
CUresult SynchronizeContext(Context& context);

}  // namespace detshare::shim
