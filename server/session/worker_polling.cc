#include "server/session/worker_polling.h"

#include "proto/cpu_load.h"
#include "server/base/thread_priority.h"

namespace detshare {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// While the client waits for each result. Its pauses are short, and waking a sleeping thread can take
// longer than the requested work. 20 ms would be too short: when pauses are exponential with a mean of
// 5 ms, 2 % of them are longer and would determine the p99.
constexpr milliseconds kAwaited(100);
// How often the worker looks whether it shares its CPU, how long it has to have waited for it since the
// last look, and for how long it then counts as shared.
constexpr milliseconds kLook(1);
constexpr int64_t kWaitedNs = 200'000;
constexpr milliseconds kShared(100);
// For so long a worker goes before other threads without a round in which it has no work.
constexpr milliseconds kLongestWork(5);
// If so many of so many short sleeps end so late, the priority does not help, against threads of another
// control group for example. The worker polls for some time as if its CPU were its own. Where it helps,
// three of a thousand wake-ups are late.
constexpr milliseconds kLate(1);
constexpr int kSleeps = 200, kLateSleeps = 4;
constexpr std::chrono::seconds kLateHold(10);

}  // namespace

microseconds WorkerPolling::Time(Clock::time_point now, bool awaited) {
  works_since_ = {};
  if (usual_.count() == 0) return usual_;
  const bool full = CpuLoad::OfHost().Full(now.time_since_epoch() / nanoseconds(1));
  if (!awaited) {
    Raise(false);
    return full ? microseconds(0) : usual_;
  }
  Raise((SharesCpu(now) || full) && now >= late_until_);
  // Without the priority, a wake-up may take milliseconds.
  return raised_ ? microseconds(0) : kAwaited;
}

bool WorkerPolling::SharesCpu(Clock::time_point now) {
  if (now >= look_at_) {
    look_at_ = now + kLook;
    const int64_t waited_ns = cpu_wait_.Nanoseconds();
    if (waited_ns - waited_ns_ >= kWaitedNs) shared_until_ = now + kShared;
    waited_ns_ = waited_ns;
  }
  return now < shared_until_;
}

void WorkerPolling::Raise(bool raised) {
  if (raised == wanted_) return;
  wanted_ = raised;
  raised_ = RaisePriority(raised) && raised;
}

void WorkerPolling::NoteWork(Clock::time_point now) {
  if (works_since_ == Clock::time_point{}) works_since_ = now;
  if (now - works_since_ > kLongestWork) Raise(false);
}

void WorkerPolling::NoteSleep(Clock::time_point begin, nanoseconds timeout) {
  if (!raised_ || timeout >= kLate) return;
  const Clock::time_point woken = Clock::now();
  late_sleeps_ += woken - begin > kLate ? 1 : 0;
  if (late_sleeps_ >= kLateSleeps) {
    late_until_ = woken + kLateHold;
    sleeps_ = kSleeps;
  }
  if (++sleeps_ >= kSleeps) sleeps_ = late_sleeps_ = 0;
}

}  // namespace detshare
