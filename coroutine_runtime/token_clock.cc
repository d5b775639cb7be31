#include "coroutine_runtime/token_clock.h"

#include <algorithm>

namespace detshare {
namespace {

using policy::Nanoseconds;

// Within one reply the client asks for the next token at once. If the client lets the device wait
// for longer than this, and for longer than the time of this many tokens, it has begun another
// reply.
constexpr Nanoseconds kLongestThought = 20 * policy::kMillisecond;
constexpr int kThoughtTokens = 4;
constexpr int kPrefillSteps = 3;  // work of more than this many steps is a prefill
constexpr int kPartialSteps = 4;  // work of less than 1/4 step does not end a step ...
constexpr int kMaxPartial = 64;   // ... except at this many such reads in a row

// A step of more than this many quarters of the usual one counts as longer.
constexpr int kLongerQuarters = 5;

bool Similar(Nanoseconds a, Nanoseconds b) { return a <= b + b / 2 && b <= a + a / 2; }

}  // namespace

TokenClock::Usual TokenClock::FindUsual() const {
  const int known = static_cast<int>(std::min<uint64_t>(reads_, kRemembered));
  Usual best;
  Nanoseconds best_total = 0;
  for (int i = 0; i < known; ++i) {
    std::array<Nanoseconds, kRemembered> alike;
    int count = 0;
    Nanoseconds total = 0;
    for (int j = 0; j < known; ++j) {
      if (!Similar(steps_[i], steps_[j])) continue;
      alike[count++] = steps_[j];
      total += steps_[j];
    }
    // The program spends most of its time in its usual steps, not in the small reads between them.
    if (count < kPattern || total <= best_total) continue;
    best_total = total;
    std::nth_element(alike.begin(), alike.begin() + count / 2, alike.begin() + count);
    best = {alike[count / 2], count};
  }
  return best;
}

void TokenClock::CountToken(Nanoseconds now, bool paced) {
  if (paced) paces_[pace_count_++ % kRemembered] = now - last_at_;
  ++tokens_;
  last_at_ = now;
}

Nanoseconds TokenClock::StepWork() const {
  if (work_ <= usual_ / 4 * kLongerQuarters) return usual_;
  const int known = static_cast<int>(std::min<uint64_t>(reads_, kRemembered));
  Nanoseconds longer = policy::kForever;
  for (int i = 0; i < known; ++i) {
    if (steps_[i] >= work_) longer = std::min(longer, steps_[i]);
  }
  return longer == policy::kForever ? work_ : longer;
}

Nanoseconds TokenClock::NextChange() const {
  if (usual_ == 0) return policy::kForever;
  const Nanoseconds longer = usual_ / 4 * kLongerQuarters + 1;
  if (work_ < longer) return longer;
  const Nanoseconds prefill = kPrefillSteps * usual_ + 1;
  const Nanoseconds more = std::max(StepWork(), work_ + work_ / 2) + 1;
  return work_ < prefill ? std::min(prefill, more) : more;
}

TokenClock::Token TokenClock::Read(Nanoseconds now) {
  if (work_ == 0) return {};  // a second read of the same results
  if (usual_ != 0 && work_ < usual_ / kPartialSteps && ++partial_ < kMaxPartial) return {};
  partial_ = 0;
  steps_[reads_++ % kRemembered] = work_;
  const Nanoseconds step = work_;
  const Nanoseconds thought = step_since_ - last_at_;
  work_ = 0;

  const Usual usual = FindUsual();
  if (usual.count == 0 || usual.work < options_.shortest_step ||
      usual.work > options_.longest_step) {
    usual_ = 0;
    next_change_ = policy::kForever;
    return {};
  }
  if (usual_ == 0) {
    usual_ = usual.work;
    next_change_ = NextChange();
    tokens_ += static_cast<uint64_t>(usual.count) - 1;
    CountToken(now, false);
    return {.counted = static_cast<uint64_t>(usual.count)};
  }
  usual_ = usual.work;
  next_change_ = NextChange();
  const bool prefill = step > kPrefillSteps * usual_;
  const Nanoseconds pace = pace_count_ == 0 ? usual_ : paces_[(pace_count_ - 1) % kRemembered];
  const bool paced = !prefill && thought <= std::max(kLongestThought, kThoughtTokens * pace);
  Token token{.counted = 1};
  if (paced) token.apart = now - last_at_;
  if (prefill) token.prefill = now - step_since_;
  CountToken(now, paced);
  return token;
}

policy::TokenView TokenClock::View() const {
  policy::TokenView view;
  if (usual_ == 0) return view;
  view.tokens = tokens_;
  view.last_at = last_at_;
  view.decode_work = usual_;
  view.step_work = StepWork();
  const int known = static_cast<int>(std::min<uint64_t>(pace_count_, kRemembered));
  for (int i = 0; i < known; ++i) view.recent_tpot += paces_[i] / known;
  view.prefill = work_ > kPrefillSteps * usual_ && work_ <= options_.longest_prefill;
  if (view.prefill) view.prefill_since = step_since_;
  return view;
}

}  // namespace detshare
