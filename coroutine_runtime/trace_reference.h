// Converts times of a device to the daemon's clock.
#pragma once

#include <memory>

#include "coroutine_runtime/device.h"
#include "policy/policy.h"

namespace detshare {

// A point of an idle queue, and the time at which it was reached. It is precise to some
// microseconds, because the thread that looks for it sleeps in between. The device counts from
// there in milliseconds of 24 bits.
struct TraceReference {
  std::unique_ptr<Marker> marker;
  policy::Nanoseconds at = 0;
};

}  // namespace detshare
