#include "coroutine_runtime/moderated_wake.h"

#include <algorithm>
#include <chrono>

namespace detshare {

void EventRate::Note(bool happened, policy::Nanoseconds now) {
  if (now >= window_end_) {
    // A window without any call in it had no events.
    const bool recent = now - window_end_ < kWindow;
    often_ = recent && events_ >= (often_ ? kEnd : kBegin);
    window_end_ = now + kWindow;
    events_ = 0;
  }
  events_ += happened ? 1 : 0;
}

void ModeratedWake::WakeNow() {
  {
    const MutexLock lock(&mutex_);
    called_.store(true, std::memory_order_seq_cst);
    now_ = true;
  }
  woken_.Signal();
}

void ModeratedWake::Wake() {
  if (called_.exchange(true, std::memory_order_seq_cst)) return;
  if (rests_.load(std::memory_order_seq_cst)) return;
  // The thread either sees called_ before it waits, or waits already.
  { const MutexLock lock(&mutex_); }
  woken_.Signal();
}

void ModeratedWake::Stop() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  woken_.Signal();
}

bool ModeratedWake::Take() {
  bool called = false;
  {
    const MutexLock lock(&mutex_);
    now_ = false;
    called = called_.exchange(false, std::memory_order_seq_cst);
  }
  rate_.Note(called, clock_.NowNanoseconds());
  return called;
}

bool ModeratedWake::Wait(Nanoseconds limit) {
  const Nanoseconds now = clock_.NowNanoseconds();
  const Nanoseconds end = limit > policy::kForever - now ? policy::kForever : now + limit;
  for (;;) {
    const bool rests = rate_.often();
    rests_.store(rests, std::memory_order_seq_cst);
    const Nanoseconds left = end - clock_.NowNanoseconds();
    MutexLock lock(&mutex_);
    const auto due = [this, rests]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return now_ || stopping_ || (!rests && called_.load(std::memory_order_seq_cst));
    };
    if (rests) {
      woken_.WaitFor(&mutex_, std::chrono::nanoseconds(std::min(left, kRest)), due);
    } else if (end == policy::kForever) {
      woken_.Wait(&mutex_, due);
    } else if (left > 0) {
      woken_.WaitFor(&mutex_, std::chrono::nanoseconds(left), due);
    }
    if (stopping_) return false;
    if (called_.load(std::memory_order_seq_cst) || clock_.NowNanoseconds() >= end) return true;
    rate_.Note(false, clock_.NowNanoseconds());
  }
}

}  // namespace detshare
