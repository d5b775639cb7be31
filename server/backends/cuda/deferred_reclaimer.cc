#include "server/backends/cuda/deferred_reclaimer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace detshare::cuda {
namespace {

// A client that waits for lost work learns of the loss after about this time.
constexpr auto kPollInterval = std::chrono::milliseconds(2);
// The number of polls without work in flight before the thread sleeps. It is large, so that a
// program with short pauses need not wake the thread after each pause.
constexpr int kIdlePolls = 50;
constexpr int64_t kTimeoutNs = 30'000'000'000;

}  // namespace

DeferredReclaimer::DeferredReclaimer(CudaContext& context)
    : context_(context), thread_([this] { Run(); }) {}

DeferredReclaimer::~DeferredReclaimer() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  wake_.SignalAll();
  thread_.join();
  if (context_.lost()) return;
  for (Item& item : later_) item.work();
}

void DeferredReclaimer::Later(Drains drains, std::function<void()> work) {
  {
    MutexLock lock(&mutex_);
    later_.push_back({drains, std::move(work), clock_.NowNanoseconds() + kTimeoutNs});
  }
  wake_.SignalAll();
}

void DeferredReclaimer::Wake() {
  watched_.store(true);
  // The lock makes sure that the thread either sees the flag or sleeps already.
  { MutexLock lock(&mutex_); }
  wake_.SignalAll();
}

void DeferredReclaimer::Run() {
  context_.Enter();
  int idle_polls = 0;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      if (!watched_.load() && later_.empty()) {
        wake_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return stop_ || watched_.load() || !later_.empty();
        });
      } else {
        wake_.WaitFor(&mutex_, kPollInterval,
                      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_; });
      }
      if (stop_) return;
    }
    if (context_.lost()) {
      // Nothing is left to do. Sleeps until the destructor.
      MutexLock lock(&mutex_);
      wake_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_; });
      return;
    }
    const bool busy = context_.Busy();
    if (busy) context_.ReleaseAbandonedWaits();
    Reclaim();
    idle_polls = busy ? 0 : idle_polls + 1;
    if (idle_polls >= kIdlePolls && watched_.load()) {
      idle_polls = 0;
      watched_.store(false);
      if (context_.Busy()) watched_.store(true);
    }
  }
}

bool DeferredReclaimer::TryRun(const Item& item) {
  const bool overdue = item.deadline_ns <= clock_.NowNanoseconds();
  CudaGroup* const urgent = context_.urgent();
  if (item.drains == Drains::kOrdinary || urgent == nullptr)
    return context_.ordinary.idle.TryRun(item.work, overdue);
  if (item.drains == Drains::kUrgent) return urgent->idle.TryRun(item.work, overdue);
  // In this order: the ordinary group changes its time slice for a call (OrdinarySlice::Call), so it
  // must not make one that only finds the urgent group busy.
  bool ran = false;
  urgent->idle.TryRun([&] { ran = context_.ordinary.idle.TryRun(item.work, overdue); }, overdue);
  return ran;
}

void DeferredReclaimer::Reclaim() {
  while (!context_.lost()) {
    const MutexLock order(&order_);
    std::list<Item> item;
    {
      MutexLock lock(&mutex_);
      if (later_.empty()) return;
      item.splice(item.begin(), later_, later_.begin());
    }
    if (TryRun(item.front())) continue;
    MutexLock lock(&mutex_);
    later_.splice(later_.begin(), item);
    return;
  }
}

std::list<DeferredReclaimer::Item> DeferredReclaimer::Take(Drains drains) {
  const MutexLock lock(&mutex_);
  std::list<Item> taken;
  const auto first = std::find_if(later_.begin(), later_.end(),
                                  [&](const Item& item) { return item.drains == drains; });
  if (first != later_.end()) taken.splice(taken.begin(), later_, first);
  return taken;
}

bool DeferredReclaimer::Has(Drains drains) {
  const MutexLock order(&order_);
  const MutexLock lock(&mutex_);
  return std::any_of(later_.begin(), later_.end(),
                     [&](const Item& item) { return item.drains == drains; });
}

bool DeferredReclaimer::MakeNow(CudaAddressSpace& space, std::chrono::milliseconds limit) {
  bool made = false;
  for (CudaGroup* const group : {&context_.ordinary, context_.urgent()}) {
    if (group == nullptr || !Has(Of(*group))) continue;
    const absl::Status status = group->idle.Run(
        space,
        [&] {
          const MutexLock order(&order_);
          for (std::list<Item> item; !(item = Take(Of(*group))).empty();) item.front().work();
          return absl::OkStatus();
        },
        limit);
    made = made || status.ok();
  }
  return made;
}

}  // namespace detshare::cuda
