#include "server/backends/soft/soft_time_slices.h"

#include <algorithm>

namespace detshare::soft {

Picoseconds TimeSlices::DelayOfUrgent(Picoseconds launch, Picoseconds ready) const {
  const Interval* const turn = LastUntil(stops_, ready);
  if (turn != nullptr && launch + kResume <= turn->end) return 0;
  const Picoseconds at = ToOrdinary(ready);
  const Interval* const work = LastUntil(ordinary_, at);
  if (work == nullptr) return 0;
  if (at < work->end) return kPreempt;
  const bool since_turn = turn == nullptr || work->end > ToOrdinary(turn->begin);
  return since_turn ? kSwitch : 0;
}

void TimeSlices::AddUrgent(Picoseconds ready, Picoseconds end) {
  stopped_ += Add(stops_, {ready, end + kResume});
  if (stops_.size() <= kMaxIntervals) return;
  const auto half = stops_.begin() + kMaxIntervals / 2;
  Picoseconds older = 0;
  for (auto stop = stops_.begin(); stop != half; ++stop) older += stop->end - stop->begin;
  *stops_.begin() = {0, older};
  stops_.erase(stops_.begin() + 1, half);
}

void TimeSlices::AddOrdinary(Picoseconds begin, Picoseconds end) {
  Add(ordinary_, {begin, end});
  if (ordinary_.size() <= kMaxIntervals) return;
  const auto half = ordinary_.begin() + kMaxIntervals / 2;
  ordinary_.front().end = (half - 1)->end;
  ordinary_.erase(ordinary_.begin() + 1, half);
}

// A stop shifts the times of the ordinary clock that are after the stop's beginning. Both functions
// begin with the last stop, because most questions are about recent times.
Picoseconds TimeSlices::ToDevice(Picoseconds ordinary) const {
  Picoseconds before = stopped_;
  for (auto stop = stops_.rbegin(); stop != stops_.rend(); ++stop) {
    const Picoseconds length = stop->end - stop->begin;
    if (stop->begin < ordinary + before - length) break;
    before -= length;
  }
  return ordinary + before;
}

Picoseconds TimeSlices::ToOrdinary(Picoseconds device) const {
  Picoseconds before = stopped_;
  for (auto stop = stops_.rbegin(); stop != stops_.rend() && device < stop->end; ++stop) {
    before -= stop->end - stop->begin;
    if (stop->begin <= device) return stop->begin - before;
  }
  return device - before;
}

Picoseconds TimeSlices::Add(Intervals& intervals, Interval added) {
  Picoseconds had = 0;
  // The intervals that touch it become part of it.
  const auto first =
      std::lower_bound(intervals.begin(), intervals.end(), added.begin,
                       [](const Interval& one, Picoseconds begin) { return one.end < begin; });
  auto last = first;
  for (; last != intervals.end() && last->begin <= added.end; ++last) {
    had += last->end - last->begin;
    added.begin = std::min(added.begin, last->begin);
    added.end = std::max(added.end, last->end);
  }
  intervals.insert(intervals.erase(first, last), added);
  return added.end - added.begin - had;
}

const TimeSlices::Interval* TimeSlices::LastUntil(const Intervals& intervals, Picoseconds at) {
  const auto after =
      std::upper_bound(intervals.begin(), intervals.end(), at,
                       [](Picoseconds time, const Interval& one) { return time < one.begin; });
  return after == intervals.begin() ? nullptr : &*(after - 1);
}

}  // namespace detshare::soft
