// What puts times of a device onto the daemon's clock.
#pragma once

#include <memory>

#include "coroutine_runtime/device.h"
#include "policy/policy.h"

namespace detshare {

// A point of an idle queue, and when it was reached. Precise to some microseconds: who looks for it
// sleeps in between; and the device counts from there in milliseconds of 24 bits.
struct TraceReference {
  std::unique_ptr<Marker> marker;
  policy::Nanoseconds at = 0;
};

}  // namespace detshare
