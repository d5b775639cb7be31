#include "server/base/thread_scheduling.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace detshare {
namespace {

constexpr uint64_t kShortestSlice = 100'000;  // nanoseconds
// Shorter than any slice that the kernel gives, and longer than a worker needs for a request of a
// client: a thread whose slice is over loses the CPU for a whole tick.
constexpr uint64_t kPromptSlice = 500'000;
constexpr int kPromptNice = -20;

// struct sched_attr of linux/sched/types.h, which cannot be included beside glibc's sched.h.
struct SchedAttributes {
  uint32_t size = sizeof(SchedAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // of an ordinary thread: the slice in nanoseconds
  uint64_t deadline = 0, period = 0;
};

constexpr uint64_t kResetOnFork = 1;  // SCHED_FLAG_RESET_ON_FORK

void UseSlice(uint64_t nanoseconds) {
  SchedAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  attributes.runtime = nanoseconds;
  attributes.flags |= kResetOnFork;  // the driver starts threads of its own
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

int NiceValue() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

// The lowest nice value that the resource limit allows.
int LowestNice() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NICE, &limit) != 0) return 0;
  return 20 - static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 40));
}

}  // namespace

ThreadScheduling::ThreadScheduling() : nice_(NiceValue()) {
  CPU_ZERO(&cpus_);
  sched_getaffinity(0, sizeof cpus_, &cpus_);
  UseSlice(kShortestSlice);
}

void ThreadScheduling::SetPrompt(bool prompt) {
  if (prompt == prompt_) return;
  prompt_ = prompt;
  const auto thread = static_cast<id_t>(gettid());
  if (!prompt) {
    setpriority(PRIO_PROCESS, thread, nice_);
  } else if (nice_ <= 0 && setpriority(PRIO_PROCESS, thread, kPromptNice) != 0 &&
             LowestNice() < nice_) {
    setpriority(PRIO_PROCESS, thread, LowestNice());
  }
  UseSlice(prompt ? kPromptSlice : kShortestSlice);
}

bool ThreadScheduling::MayBePrompt() {
  bool may = false;
  std::thread([&may] {
    ThreadScheduling scheduling;
    scheduling.SetPrompt(true);
    may = NiceValue() == kPromptNice;
  }).join();
  return may;
}

void ThreadScheduling::RunAnywhere() {
  if (!std::exchange(bound_, false)) return;
  sched_setaffinity(0, sizeof cpus_, &cpus_);
}

void ThreadScheduling::KeepOn(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &cpus_)) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  bound_ = sched_setaffinity(0, sizeof set, &set) == 0 || bound_;
}

void Alternation::NoteWake(bool replied) {
  if (replied) ++replied_;
  if (++wakes_ < kWindow) return;
  alternates_ = replied_ >= kMinReplied;
  wakes_ = replied_ = 0;
}

void WakeUps::Note(std::chrono::nanoseconds late, TimePoint now) {
  ++sleeps_;
  if (late >= kLate && ++late_ > kMaxLate) {
    distrust_until_ = now + kDistrust;
    sleeps_ = late_ = 0;
  } else if (sleeps_ == kWindow) {
    sleeps_ = late_ = 0;
  }
}

}  // namespace detshare
