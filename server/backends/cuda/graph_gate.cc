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

// A change that this thread makes now, counted in `changing`: of each kind one for each GPU at most.
class OwnChange {
 public:
  explicit OwnChange(std::atomic<uint32_t>& changing) : changing_(changing), before_(latest_) {
    latest_ = this;
    // Sequentially consistent: it is published before the caller looks for graphs. Enter() publishes the
    // launch before it looks for changes.
    changing_.fetch_add(1);
  }
  ~OwnChange() {
    changing_.fetch_sub(1);
    latest_ = before_;
  }
  OwnChange(const OwnChange&) = delete;
  OwnChange& operator=(const OwnChange&) = delete;

  // Whether this thread makes one that is counted there.
  static bool Any(const std::atomic<uint32_t>& changing) {
    const OwnChange* change = latest_;
    while (change != nullptr && &change->changing_ != &changing) change = change->before_;
    return change != nullptr;
  }
  static bool OthersChange(const std::atomic<uint32_t>& changing) {
    return changing.load() > (Any(changing) ? 1U : 0U);
  }

 private:
  static thread_local const OwnChange* latest_;
  std::atomic<uint32_t>& changing_;
  const OwnChange* const before_;
};
thread_local const OwnChange* OwnChange::latest_ = nullptr;

}  // namespace

bool GraphGate::Enter(int64_t waited) {
  own_.entering.fetch_add(1);
  const bool here = waited < kMaxChange && OwnChange::OthersChange(changing_here_);
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
  if (OwnChange::Any(own_.changing)) return change();
  const OwnChange own(own_.changing);
  Await(/*everywhere=*/true);
  change();
}

void GraphGate::ChangeHere(absl::FunctionRef<void()> change) {
  if (OwnChange::Any(own_.changing) || OwnChange::Any(changing_here_)) return change();
  AwaitRefused();
  const OwnChange own(changing_here_);
  Await(/*everywhere=*/false);
  change();
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
    if (obstacle == kGraphs ? !InFlight(words) : !OwnChange::OthersChange(words.changing)) return;
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
