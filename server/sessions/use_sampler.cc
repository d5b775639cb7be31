#include "server/sessions/use_sampler.h"

#include <pthread.h>

#include <utility>

namespace detshare {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSamplePeriod(100);

UseSampler::UseSampler(std::function<void(std::chrono::nanoseconds)> sample)
    : sample_(std::move(sample)), thread_([this] { Run(); }) {}

UseSampler::~UseSampler() {
  {
    const MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void UseSampler::Begin() {
  {
    const MutexLock lock(&mutex_);
    ++count_;
  }
  changed_.SignalAll();
}

void UseSampler::End() {
  const MutexLock lock(&mutex_);
  --count_;
}

void UseSampler::Run() {
  pthread_setname_np(pthread_self(), "use sampler");
  MutexLock lock(&mutex_);
  for (;;) {
    changed_.Wait(&mutex_,
                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || count_ != 0; });
    Clock::time_point last = Clock::now();
    while (!stop_ && count_ != 0) {
      changed_.WaitFor(&mutex_, kSamplePeriod,
                       [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_; });
      lock.Unlock();
      const Clock::time_point now = Clock::now();
      sample_(now - last);
      last = now;
      lock.Lock();
    }
    if (stop_) return;
  }
}

}  // namespace detshare
