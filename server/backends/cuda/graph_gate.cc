#include "server/backends/cuda/graph_gate.h"

#include <chrono>
#include <thread>

namespace detshare::cuda {
namespace {

constexpr std::chrono::microseconds kPoll(20);

bool RunsIn(size_t group, const SliceWords& words) {
  return words.launched[group].load() != words.ended[group].load();
}

bool InFlight(const SliceWords& words) {
  if (words.entering.load() != 0) return true;
  for (size_t group = 0; group < SliceWords::kGroups; ++group) {
    if (RunsIn(group, words)) return true;
  }
  return false;
}

// The changes of its process that this thread makes now, the latest first: one for each GPU at most.
struct OwnChange {
  const GraphGate* gate;
  const OwnChange* before;
};
thread_local const OwnChange* t_changes = nullptr;

bool ThreadChanges(const GraphGate* gate) {
  const OwnChange* change = t_changes;
  while (change != nullptr && change->gate != gate) change = change->before;
  return change != nullptr;
}

}  // namespace

bool GraphGate::Enter(int64_t waited) {
  own_.entering.fetch_add(1);
  const uint32_t own_changes = ThreadChanges(this) ? 1 : 0;
  const bool here = waited < kMaxChange && changing_here_.load() > own_changes;
  if (!here && !Any(/*everywhere=*/true, kChanges, waited, kMaxChange)) {
    if (refused_here_.load()) refused_here_.store(false);
    return true;
  }
  if (here) refused_here_.store(true);
  Leave();
  return false;
}

uint64_t GraphGate::Count(size_t group) { return own_.launched[group].fetch_add(1) + 1; }

bool GraphGate::Closed(size_t group) const {
  return own_.entering.load() != 0 || RunsIn(group, own_);
}

void GraphGate::EndHolds() {
  const int64_t began = clock_.NowNanoseconds();
  while (end_holds_ && !end_holds_() && clock_.NowNanoseconds() - began < kMaxGraph)
    std::this_thread::sleep_for(kPoll);
}

void GraphGate::Change(absl::FunctionRef<void()> change) {
  const MutexLock lock(&changing_);
  own_.changing.store(1);
  Await(/*everywhere=*/true);
  change();
  own_.changing.store(0);
}

void GraphGate::ChangeHere(absl::FunctionRef<void()> change) {
  if (ThreadChanges(this)) return change();
  AwaitRefused();
  const OwnChange own{this, t_changes};
  t_changes = &own;
  changing_here_.fetch_add(1);
  Await(/*everywhere=*/false);
  change();
  changing_here_.fetch_sub(1);
  t_changes = own.before;
}

void GraphGate::AwaitRefused() const {
  const int64_t began = clock_.NowNanoseconds();
  while (refused_here_.load() && clock_.NowNanoseconds() - began < kMaxGraph)
    std::this_thread::sleep_for(kPoll);
}

void GraphGate::Await(bool everywhere) {
  const int64_t began = clock_.NowNanoseconds();
  while (Any(everywhere, kGraphs, clock_.NowNanoseconds() - began, kMaxGraph))
    std::this_thread::sleep_for(kPoll);
}

bool GraphGate::Any(bool everywhere, Obstacle obstacle, int64_t waited, int64_t max) {
  bool any = false;
  const auto look = [&](uint64_t id, const SliceWords& words) {
    if (obstacle == kGraphs ? !InFlight(words) : words.changing.load() == 0) return;
    const MutexLock lock(&mutex_);
    int64_t& until = ignored_until_[{id, obstacle}];
    const int64_t now = clock_.NowNanoseconds();
    if (waited >= max) until = now + kIgnored;
    any = any || now >= until;
  };
  look(0, own_);
  if (!everywhere || peers_ == nullptr) return any;
  peers_->ForEach([&](uint64_t id, const EnginePage& page) { look(id, page.slices[device_]); });
  return any;
}

}  // namespace detshare::cuda
