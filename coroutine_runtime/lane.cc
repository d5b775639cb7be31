#include "coroutine_runtime/lane.h"

#include <algorithm>
#include <utility>

namespace detshare {
namespace {

// Progress is looked at this many times within a window.
constexpr int kFencesPerWindow = 2;
// ... and after so much work where there is no window, so that the figures mean something.
constexpr Nanoseconds kLongestUnfenced = 5 * policy::kMillisecond;

template <typename T>
void Set(std::atomic<T>& figure, T value) {
  figure.store(value, std::memory_order_relaxed);
}
template <typename T>
T Get(const std::atomic<T>& figure) {
  return figure.load(std::memory_order_relaxed);
}
// Written by one thread only.
template <typename T>
void Add(std::atomic<T>& figure, T by) {
  Set(figure, Get(figure) + by);
}
bool Late(Nanoseconds took, Nanoseconds promised) { return promised != 0 && took > promised; }
// Moves towards `value` by an eighth of the way; the first value counts in full.
void Follow(std::atomic<Nanoseconds>& figure, Nanoseconds value) {
  const Nanoseconds before = Get(figure);
  Set(figure, before == 0 ? value : before + (value - before) / 8);
}

}  // namespace

bool DeviceLoad::PressingBelow(int rank, Nanoseconds now) const {
  const uint64_t working = busy.load(std::memory_order_relaxed);
  for (int other = 0; other < rank; ++other) {
    const bool works = (working >> (8 * other) & 0xff) != 0;
    if (works && now < pressing_until[other].load(std::memory_order_relaxed)) return true;
  }
  return false;
}

void DeviceLoad::PressUntil(int rank, Nanoseconds until, bool begins) {
  std::atomic<Nanoseconds>& latest = pressing_until[rank];
  if (begins && (busy.load(std::memory_order_relaxed) >> (8 * rank) & 0xff) == 0) {
    // What is there is of bursts that have ended. Of two that begin at once one may press for as
    // long as the other.
    latest.store(until, std::memory_order_relaxed);
    return;
  }
  Nanoseconds before = latest.load(std::memory_order_relaxed);
  while (before < until &&
         !latest.compare_exchange_weak(before, until, std::memory_order_relaxed)) {
  }
}

CoroutineLane::~CoroutineLane() { Forget(); }

void CoroutineLane::Publish(Orders orders) {
  const std::lock_guard<std::mutex> lock(mutex_);
  published_ = std::move(orders);
  version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

CoroutineLane::Report CoroutineLane::report() const {
  Report report;
  report.has_work = Get(figures_.has_work);
  report.rank = Get(figures_.rank);
  report.changed_at = Get(figures_.changed_at);
  report.in_flight = Get(figures_.in_flight);
  report.held_since = Get(figures_.held_since);
  report.device_time = Get(figures_.device_time);
  report.longest_operation = Get(figures_.longest_operation);
  report.typical_operation = Get(figures_.typical_operation);
  report.typical_burst = Get(figures_.typical_burst);
  report.typical_gap = Get(figures_.typical_gap);
  report.held_by_window = Get(figures_.held_by_window);
  report.held_by_budget = Get(figures_.held_by_budget);
  report.memory_bound = Get(figures_.memory_bound);
  report.operations = Get(figures_.operations);
  report.passes = Get(figures_.passes);
  report.partition = Get(figures_.partition);
  const std::lock_guard<std::mutex> lock(mutex_);
  report.tokens = tokens_view_;
  return report;
}

WorkTotals CoroutineLane::totals() const {
  WorkTotals totals;
  totals.device_time = Get(figures_.device_time);
  totals.memory_bound = Get(figures_.bound_time);
  totals.held_by_window = Get(figures_.held_by_window);
  totals.held_by_budget = Get(figures_.held_by_budget);
  totals.passes = Get(figures_.passes);
  totals.tokens = Get(figures_.tokens);
  totals.late_bursts = Get(figures_.late_bursts);
  totals.late_first_tokens = Get(figures_.late_first_tokens);
  totals.late_tokens = Get(figures_.late_tokens);
  totals.bursts = DurationCounts(bursts_);
  totals.holds = DurationCounts(holds_);
  totals.operations = DurationCounts(timed_);
  totals.first_tokens = DurationCounts(first_tokens_);
  totals.tokens_apart = DurationCounts(tokens_apart_);
  return totals;
}

void CoroutineLane::Refresh() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    seen_ = version_.load(std::memory_order_relaxed);
    orders_ = published_;
  }
  budget_ = orders_.budget;
  if (orders_.followed && durations_ == nullptr)
    durations_ = std::make_unique<DurationCache>(table_);
  const Terms& quiet = orders_.quiet;
  const Terms& pressed = orders_.pressed;
  const Terms& closing = orders_.closing;
  const auto one_place = [&](const Terms& terms) {
    return terms.partition == quiet.partition && terms.long_partition == quiet.partition &&
           (terms.yielding_block == 0 || terms.yielding_partition == quiet.partition);
  };
  unlimited_ = !orders_.followed ||
               (quiet.window == policy::kForever && pressed.window == policy::kForever &&
                closing.window == policy::kForever && budget_ == policy::kForever);
  same_terms_ = !orders_.followed;
  traced_ = orders_.trace != nullptr;
  fixed_ = nullptr;
  if (orders_.migrate_every == 0 &&
      (!orders_.followed || (one_place(quiet) && one_place(pressed) && one_place(closing)))) {
    fixed_ = quiet.partition;
  }
  fence_every_ = kLongestUnfenced;
  for (const Nanoseconds window : {quiet.window, pressed.window, closing.window}) {
    if (window > 0) fence_every_ = std::min(fence_every_, window / kFencesPerWindow);
  }
  if (working_ && counted_rank_ != orders_.rank) {
    const int before = std::exchange(counted_rank_, orders_.rank);
    Press(/*begins=*/true);
    load_.busy.fetch_add(DeviceLoad::One(counted_rank_) - DeviceLoad::One(before),
                         std::memory_order_relaxed);
  }
  Set(figures_.rank, orders_.rank);
  if (Get(figures_.partition) == nullptr || fixed_ != nullptr) {
    Set(figures_.partition, quiet.partition);
  }
  if (unlimited_) {
    pass_ = false;
    if (held_since_ != 0) EndHold();
  }
}

bool CoroutineLane::Hold() {
  const Nanoseconds now = clock_.NowNanoseconds();
  if (held_since_ == 0) {
    held_since_ = std::max<Nanoseconds>(now, 1);
    held_by_ = budget_ <= 0 ? Cause::kBudget : Cause::kWindow;
    if (held_by_ == Cause::kBudget) news_ = true;
    load_.held.fetch_add(1, std::memory_order_relaxed);
    Set(figures_.held_since, held_since_);
    SetWorking(true);
  }
  if (now - held_since_ < Current().longest_hold) return false;
  pass_ = true;
  Add<uint64_t>(figures_.passes, 1);
  EndHold();
  return true;
}

void CoroutineLane::EndHold() {
  if (held_since_ == 0) return;
  const Nanoseconds held = clock_.NowNanoseconds() - held_since_;
  Add(held_by_ == Cause::kBudget ? figures_.held_by_budget : figures_.held_by_window, held);
  holds_.Add(held);
  if (traced()) [[unlikely]] {
    TraceEvent event;
    event.kind = TraceEvent::Kind::kHeld;
    event.cause = static_cast<uint8_t>(held_by_);
    event.at = held_since_;
    event.duration = held;
    trace_.Add(event);
  }
  held_since_ = 0;
  load_.held.fetch_sub(1, std::memory_order_relaxed);
  Set<Nanoseconds>(figures_.held_since, 0);
}

void CoroutineLane::SetInFlight(Nanoseconds in_flight) {
  in_flight_ = in_flight;
  Set(figures_.in_flight, in_flight);
  // More than any window for short ones.
  const bool occupies = in_flight > 0 && in_flight >= orders_.quiet.long_operation;
  if (occupies == occupies_) return;
  occupies_ = occupies;
  load_.occupied.fetch_add(occupies ? 1 : -1, std::memory_order_relaxed);
}

const CoroutineLane::Terms& CoroutineLane::BesideOthers() const {
  return load_.PressingBelow(orders_.rank, clock_.NowNanoseconds()) ? orders_.pressed
                                                                    : orders_.closing;
}

void CoroutineLane::Press(bool begins) {
  const Nanoseconds typical = Get(figures_.typical_burst);
  const Nanoseconds until =
      policy::PressingUntil(orders_.pressing, changed_at_, typical, burst_, disturbed_);
  usual_until_ = until == policy::kForever ? policy::kForever : typical;
  load_.PressUntil(counted_rank_, until, begins);
}

Partition& CoroutineLane::ChooseByTerms(Kind kind) {
  Partition* chosen;
  if (orders_.migrate_every != 0 && !orders_.partitions.empty()) {
    if (++since_move_ >= orders_.migrate_every) {
      since_move_ = 0;
      ++next_place_;
    }
    chosen = orders_.partitions[next_place_ % orders_.partitions.size()];
  } else {
    const Terms& terms = Current();
    chosen = kind == Kind::kShort  ? terms.partition
             : kind == Kind::kLong ? terms.long_partition
                                   : terms.yielding_partition;
  }
  Set(figures_.partition, chosen);
  return *chosen;
}

void CoroutineLane::SetWorking(bool working) {
  if (working == working_) return;
  working_ = working;
  const Nanoseconds now = clock_.NowNanoseconds();
  if (working) {
    if (changed_at_ != 0) Follow(figures_.typical_gap, now - changed_at_);
    changed_at_ = now;
    burst_ = 0;
    disturbed_ = load_.occupied.load(std::memory_order_relaxed) > (occupies_ ? 1 : 0);
    counted_rank_ = orders_.rank;
    Press(/*begins=*/true);
    load_.busy.fetch_add(DeviceLoad::One(counted_rank_), std::memory_order_relaxed);
  } else {
    load_.busy.fetch_sub(DeviceLoad::One(counted_rank_), std::memory_order_relaxed);
    Follow(figures_.typical_burst, burst_);
    bursts_.Add(now - changed_at_);
    if (Late(now - changed_at_, orders_.promise.burst)) Add<uint64_t>(figures_.late_bursts, 1);
  }
  changed_at_ = now;
  Set(figures_.changed_at, now);
  Set(figures_.has_work, working);
  news_ = true;
}

void CoroutineLane::Started(Nanoseconds estimate, bool counts) {
  pass_ = false;
  if (budget_ != policy::kForever) {
    budget_ -= estimate;
    if (budget_ <= 0) news_ = true;
  }
  if (tokens_.step_begins()) tokens_.Begin(clock_.NowNanoseconds());
  if (tokens_.Work(estimate)) [[unlikely]]
    PublishTokens();
  Add<uint64_t>(figures_.operations, 1);
  Add(figures_.device_time, estimate);
  Follow(figures_.typical_operation, estimate);
  // Forgets what was long ago: a step of training later it has seen the longest one again.
  const Nanoseconds longest = Get(figures_.longest_operation);
  Set(figures_.longest_operation, std::max(estimate, longest - longest / 4096));
  if (!counts) {
    parked_ += estimate;
    return;
  }
  AddToBurst(estimate);
}

void CoroutineLane::AddToBurst(Nanoseconds estimate) {
  SetWorking(true);
  burst_ += estimate;
  // Perhaps it is a longer one than usual.
  if (burst_ > usual_until_) Press(/*begins=*/false);
  SetInFlight(in_flight_ + estimate);
}

void CoroutineLane::ResultRead() {
  const TokenClock::Token token = tokens_.Read(clock_.NowNanoseconds());
  Add(figures_.tokens, token.counted);
  if (token.apart != 0) {
    tokens_apart_.Add(token.apart);
    if (Late(token.apart, orders_.promise.token)) Add<uint64_t>(figures_.late_tokens, 1);
  }
  if (token.prefill != 0) {
    first_tokens_.Add(token.prefill);
    if (Late(token.prefill, orders_.promise.first_token))
      Add<uint64_t>(figures_.late_first_tokens, 1);
  }
  PublishTokens();
}

void CoroutineLane::PublishTokens() {
  const policy::TokenView view = tokens_.View();
  const std::lock_guard<std::mutex> lock(mutex_);
  tokens_view_ = view;
  news_ = news_ || view.tokens != 0;
}

void CoroutineLane::Resumed(Nanoseconds estimate) {
  parked_ -= estimate;
  AddToBurst(estimate);
}

void CoroutineLane::Completed(Nanoseconds estimate) { SetInFlight(in_flight_ - estimate); }

void CoroutineLane::Idle() {
  if (held_since_ == 0) SetWorking(false);
}

void CoroutineLane::Forget() {
  EndHold();
  SetWorking(false);
  parked_ = 0;
  pass_ = false;
  SetInFlight(0);
}

}  // namespace detshare
