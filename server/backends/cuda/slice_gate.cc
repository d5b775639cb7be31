#include "server/backends/cuda/slice_gate.h"

#include <chrono>
#include <thread>

namespace detshare::cuda {
namespace {

constexpr std::chrono::microseconds kPoll(20);

bool InFlight(const SliceWords& words) {
  if (words.entering.load() != 0) return true;
  for (size_t group = 0; group < SliceWords::kGroups; ++group) {
    if (words.launched[group].load() != words.ended[group].load()) return true;
  }
  return false;
}

bool Changes(const SliceWords& words) { return words.changing.load() != 0; }

}  // namespace

bool SliceGate::Enter(int64_t waited) {
  own_.entering.fetch_add(1);
  if (!Any(waited, kMaxChange, Changes)) return true;
  Leave();
  return false;
}

uint64_t SliceGate::Count(size_t group) { return own_.launched[group].fetch_add(1) + 1; }

void SliceGate::Change(absl::FunctionRef<void()> change) {
  const MutexLock lock(&changing_);
  own_.changing.store(1);
  const int64_t began = clock_.NowNanoseconds();
  const auto waited = [&] { return clock_.NowNanoseconds() - began; };
  const auto unknown = [&] {
    return peers_ != nullptr && peers_->used.load(std::memory_order_acquire) == 0 &&
           waited() < kUnknown;
  };
  while (unknown() || Any(waited(), kMaxGraph, InFlight)) std::this_thread::sleep_for(kPoll);
  change();
  own_.changing.store(0);
}

bool SliceGate::Any(int64_t waited, int64_t max, Test test) {
  bool any = false;
  const auto look = [&](uint64_t id, const SliceWords& words) {
    if (!test(words)) return;
    const MutexLock lock(&mutex_);
    int64_t& until = ignored_until_[id];
    const int64_t now = clock_.NowNanoseconds();
    if (waited >= max) until = now + kIgnored;
    any = any || now >= until;
  };
  look(0, own_);
  if (peers_ == nullptr) return any;
  peers_->ForEach([&](uint64_t id, const EnginePage& page) { look(id, page.slices[device_]); });
  return any;
}

}  // namespace detshare::cuda
