#include "server/backends/cuda/graph_gate.h"

#include <chrono>
#include <thread>
#include <utility>

namespace detshare::cuda {
namespace {

constexpr std::chrono::microseconds kPoll(20);

bool RunsIn(size_t group, const SliceWords& words) {
  return words.launched[group].load() != words.ended[group].load();
}

// Apart from the launches of `own_entering` threads.
bool InFlight(const SliceWords& words, uint32_t own_entering) {
  if (words.entering.load() > own_entering) return true;
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
    Publish();
  }
  ~OwnChange() {
    Withdraw();
    latest_ = before_;
  }
  OwnChange(const OwnChange&) = delete;
  OwnChange& operator=(const OwnChange&) = delete;

  // The one of this thread that is counted there; null: none.
  static OwnChange* Of(const std::atomic<uint32_t>& changing) {
    OwnChange* change = latest_;
    while (change != nullptr && &change->changing_ != &changing) change = change->before_;
    return change;
  }
  static bool OthersChange(const std::atomic<uint32_t>& changing) {
    const OwnChange* const own = Of(changing);
    return changing.load() > (own != nullptr && own->published_ ? 1U : 0U);
  }

  // Returns false if it is published already. Sequentially consistent: it is published before the caller
  // looks for graphs. Enter() publishes the launch before it looks for changes.
  bool Publish() {
    if (std::exchange(published_, true)) return false;
    changing_.fetch_add(1);
    return true;
  }
  void Withdraw() {
    if (std::exchange(published_, false)) changing_.fetch_sub(1);
  }

 private:
  static thread_local OwnChange* latest_;
  std::atomic<uint32_t>& changing_;
  OwnChange* const before_;
  bool published_ = false;
};
thread_local OwnChange* OwnChange::latest_ = nullptr;

}  // namespace

bool GraphGate::Enter(int64_t waited) {
  // Two threads that change and launch would wait for each other. So one that is refused withdraws its
  // change until it asks again, and others may launch meanwhile.
  OwnChange* const own = OwnChange::Of(own_.changing);
  const bool was_withdrawn = own != nullptr && own->Publish();
  own_.entering.fetch_add(1);
  const bool here = waited < kMaxChange && OwnChange::OthersChange(changing_here_);
  if (!here && !Any(/*everywhere=*/true, kChanges, waited, kMaxChange) &&
      !(was_withdrawn &&
        Any(/*everywhere=*/true, kGraphs, waited, kMaxGraph, /*own_entering=*/1))) {
    if (refused_here_.load()) refused_here_.store(false);
    return true;
  }
  if (here) refused_here_.store(true);
  Leave();
  if (own != nullptr) own->Withdraw();
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
  if (OwnChange::Of(own_.changing) != nullptr) return change();
  const OwnChange own(own_.changing);
  Await(/*everywhere=*/true);
  change();
}

void GraphGate::ChangeHere(absl::FunctionRef<void()> change) {
  if (OwnChange::Of(own_.changing) != nullptr || OwnChange::Of(changing_here_) != nullptr)
    return change();
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

bool GraphGate::Any(bool everywhere, Obstacle obstacle, int64_t waited, int64_t max,
                    uint32_t own_entering) {
  bool any = false;
  const auto look = [&](uint64_t id, const SliceWords& words) {
    const bool has_it = obstacle == kGraphs ? InFlight(words, id == 0 ? own_entering : 0)
                                            : OwnChange::OthersChange(words.changing);
    if (!has_it) return;
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
