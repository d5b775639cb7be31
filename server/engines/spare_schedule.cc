#include "server/engines/spare_schedule.h"

#include <algorithm>
#include <utility>

namespace detshare {

void SpareSchedule::Start(Clock::time_point now) {
  if (std::exchange(timer_runs_, true)) return;
  timer_.Start(std::max(kPause, std::chrono::ceil<std::chrono::milliseconds>(not_before_ - now)));
}

size_t SpareSchedule::TakeDue(size_t there, Clock::time_point now) {
  timer_.Clear();
  timer_runs_ = false;
  return now < not_before_ || there >= wanted_ ? 0 : wanted_ - there;
}

std::chrono::seconds SpareSchedule::Failed(Clock::time_point now, Clock::duration ran) {
  if (ran > kMaxFailurePause) failures_ = 0;
  std::chrono::seconds pause = kFailurePause;
  for (int i = 0; i < failures_ && pause < kMaxFailurePause; ++i) pause *= 2;
  pause = std::min(pause, kMaxFailurePause);
  ++failures_;
  not_before_ = std::max(not_before_, now + pause);
  return pause;
}

void SpareSchedule::LeaveRoom(Clock::time_point now) {
  not_before_ = std::max(not_before_, now + kRoomPause);
}

}  // namespace detshare
