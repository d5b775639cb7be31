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

// The pauses between two looks at work that wakes no thread. On a GPU they grow to 50 us. A
// software GPU runs kernels on the CPUs that looks take, so there the pauses grow with the wait: its
// end is noticed late by an eighth of it, and by 5 ms at most.
class Naps {
 public:
  // The length of a pause, in microseconds. `last_us`: that of the pause before, or 0.
  static uint32_t Next(bool software, uint32_t last_us, uint64_t waited_us);

  // `device`: whose work the thread waits for.
  explicit Naps(uint16_t device);
  // Sleeps for the next pause.
  void Nap();

 private:
  const bool software_;
  const uint64_t begin_us_;
  uint32_t last_us_ = 0;
};

// Asks for the next signal of the calling thread's own fence. Only this thread waits for that
// fence. Returns false if no fence is left.
bool ThreadFence(wire::Signal* signal);

// Waits for all work of the context. Returns the sticky error if there is one.
CUresult SynchronizeContext(Context& context);
// The same for all contexts, without their errors.
void SynchronizeContexts();

}  // namespace detshare::shim
