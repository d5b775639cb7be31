// How the two time-slice groups of the software GPU (coroutine_runtime/device.h) share it in
// virtual time.
//
// Ordinary work is placed on the ordinary clock, which stands still while the urgent group has the
// device. So urgent work delays all ordinary work that is after it in time, by as long as the clock
// stands still, and changes nothing else about it. A kernel that runs when the clock stops goes on
// when the clock does.
//
//   device    |----ordinary----|kPreempt|---urgent---|kResume|----ordinary----|
//   ordinary  |----------------|                             |----------------|
//                              ^ the urgent kernel is ready
//
// A kernel is ready when its launch is over and the work of its own group leaves it a place. A turn
// of the urgent group lasts from the moment when its first kernel is ready until it has no work.
// The first kernel begins
//   - kPreempt after it is ready, if ordinary work is running or waits for its SMs;
//   - kSwitch after it is ready, if no ordinary work is there, but was since the last turn;
//   - when it is ready, if there was no ordinary work since the last turn, or none ever.
// Only ordinary work that was submitted before the urgent kernel counts here.
//
// The clock stands still from the moment when the first kernel is ready until kResume after the
// turn. So ordinary work that nobody preempts pays nothing, nor does urgent work that is alone.
//
// The delays are those of an H200 whose registers and shared memory are full: urgent work waits 190
// us for them to be saved, a turn costs ordinary work 240 us beside the urgent work itself, and a
// switch from a group that has just become idle takes 140 us. On that GPU two groups with short
// slices make no progress when both have work. A process has one ordinary group, and virtual time
// knows one process. Between processes ordinary_group.h stops the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace detshare::soft {

using Picoseconds = uint64_t;

inline constexpr Picoseconds kPreempt = 190'000'000;
inline constexpr Picoseconds kSwitch = 140'000'000;
inline constexpr Picoseconds kResume = 50'000'000;

// Not thread-safe. All device times are on the device's clock.
class TimeSlices {
 public:
  // Both lists are bounded. Beyond this number of intervals, the older half becomes one interval:
  // older ordinary work counts as work without a gap, and older stops of the ordinary clock as one
  // stop at time 0.
  static constexpr size_t kMaxIntervals = 4096;

  // The delay of an urgent kernel that was launched at `launch` and can run at `ready`; 0 if it is
  // part of a turn.
  Picoseconds DelayOfUrgent(Picoseconds launch, Picoseconds ready) const;
  // The urgent group has work that is ready at `ready` and complete at `end`, delay included.
  void AddUrgent(Picoseconds ready, Picoseconds end);
  // The ordinary group has work from `begin` to `end`, on its clock.
  void AddOrdinary(Picoseconds begin, Picoseconds end);

  // The device's time at this time of the ordinary clock. If the clock stands still, the beginning
  // of the stop.
  Picoseconds ToDevice(Picoseconds ordinary) const;
  Picoseconds ToOrdinary(Picoseconds device) const;

 private:
  struct Interval {
    Picoseconds begin = 0, end = 0;  // without the end
  };
  // Disjoint intervals, in their order.
  using Intervals = std::vector<Interval>;
  // Returns by how much the intervals together become longer.
  static Picoseconds Add(Intervals& intervals, Interval added);
  static const Interval* LastUntil(const Intervals& intervals, Picoseconds at);

  Intervals stops_;          // of the ordinary clock, in device time
  Intervals ordinary_;       // when the ordinary group has work, on its clock
  Picoseconds stopped_ = 0;  // the length of all stops
};

}  // namespace detshare::soft
