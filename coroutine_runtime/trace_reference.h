// Converts times of a device to the daemon's clock, unless its time is virtual.
#pragma once

#include <memory>

#include "coroutine_runtime/device.h"
#include "policy/policy.h"

namespace detshare {

// For each time-slice group, a point of an idle queue and the time at which it was reached. The
// time is precise to some microseconds, because the thread that looks for the point sleeps in
// between. The device counts from there in milliseconds of 24 bits.
struct TraceReference {
  struct Point {
    std::unique_ptr<Marker> marker;
    policy::Nanoseconds at = 0;
  };
  Point ordinary;
  Point urgent;  // without a marker if the urgent group was not open

  // The point for operations of the group.
  const Point& Of(bool in_urgent_group) const {
    return in_urgent_group && urgent.marker != nullptr ? urgent : ordinary;
  }
};

}  // namespace detshare
