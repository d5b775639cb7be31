// Waits for fences, and for all work of a context.
#pragma once

#include <cstdint>

#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"
#include "proto/ring_abi.h"
#include "proto/wire/common.h"

namespace detshare::shim {

// Polls a fence for as long as the daemon's grant says (wait_spin_us). With `blocking`, for a
// program that asked for blocking waits, it polls only for a moment (spin_us). Returns whether the
// fence has reached the value. Acquire: what the value stands for happened before.
bool SpinForFence(FenceIndex index, uint64_t value, bool blocking = false);

// Asks for the next signal of the calling thread's own fence. Only this thread waits for that
// fence. Returns false if no fence is left.
bool ThreadFence(wire::Signal* signal);

// Waits for all work of the context. Returns the sticky error if there is one.
CUresult SynchronizeContext(Context& context);

}  // namespace detshare::shim
