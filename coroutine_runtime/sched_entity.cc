#include "coroutine_runtime/sched_entity.h"

#include <algorithm>
#include <utility>

#include "policy/saturating.h"

namespace detshare {
namespace {

// Progress is checked this many times within a window.
constexpr int kFencesPerWindow = 2;
// Without a window, progress is checked after this much work, so that the figures stay current.
constexpr Nanoseconds kLongestUnfenced = 5 * policy::kMillisecond;

template <typename T>
void Set(std::atomic<T>& figure, T value) {
  figure.store(value, std::memory_order_relaxed);
}
template <typename T>
T Get(const std::atomic<T>& figure) {
  return figure.load(std::memory_order_relaxed);
}
// Only one thread writes the figure.
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

bool SchedBoard::InContentionBelow(int rank, Nanoseconds now) const {
  const uint64_t working = busy.load(std::memory_order_relaxed);
  for (int other = 0; other < rank; ++other) {
    const bool works = (working >> (8 * other) & 0xff) != 0;
    if (works && now < contention_until[other].load(std::memory_order_relaxed)) return true;
  }
  return false;
}

void SchedBoard::RestrictUntil(int rank, Nanoseconds until, bool begins) {
  std::atomic<Nanoseconds>& latest = contention_until[rank];
  if (begins && (busy.load(std::memory_order_relaxed) >> (8 * rank) & 0xff) == 0) {
    // The stored time belongs to bursts that have ended. If two bursts begin at once, the time of
    // one may replace the other's.
    latest.store(until, std::memory_order_relaxed);
    return;
  }
  Nanoseconds before = latest.load(std::memory_order_relaxed);
  while (before < until &&
         !latest.compare_exchange_weak(before, until, std::memory_order_relaxed)) {
  }
}

void SchedBoard::ShareOrdinary(Nanoseconds until, bool known) {
  if (known) {
    Nanoseconds latest = native_until.load(std::memory_order_relaxed);
    while (latest < until && !native_until.compare_exchange_weak(latest, until)) {
    }
  }
  Nanoseconds before = shared_until.load(std::memory_order_relaxed);
  while (before < until && !shared_until.compare_exchange_weak(before, until)) {
  }
  if (before == 0) share_ordinary(true);
}

void SchedBoard::EndSharing(Nanoseconds now) {
  Nanoseconds until = shared_until.load(std::memory_order_relaxed);
  if (until != 0 && until < now && shared_until.compare_exchange_strong(until, 0))
    share_ordinary(false);
}

bool SchedBoard::EnterTurn(bool preempting, uint64_t group) {
  constexpr uint64_t kCount = (uint64_t{1} << kCountBits) - 1;
  std::atomic<uint64_t>& turn = turns[preempting];
  const uint64_t of_group = group << kCountBits;
  uint64_t before = turn.load(std::memory_order_relaxed);
  do {
    if ((before & kCount) != 0 && (before & ~kCount) != of_group) return false;
  } while (!turn.compare_exchange_weak(before, of_group | ((before & kCount) + 1),
                                       std::memory_order_acquire, std::memory_order_relaxed));
  return true;
}

SchedEntity::~SchedEntity() { Forget(); }

void SchedEntity::Publish(Assignment assignment) {
  const MutexLock lock(&mutex_);
  published_ = std::move(assignment);
  version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

SchedEntityReport SchedEntity::report() const {
  SchedEntityReport report;
  report.has_work = Get(figures_.has_work);
  report.bound_ordinary = Get(figures_.bound_ordinary);
  report.bound_urgent = Get(figures_.bound_urgent);
  report.rank = Get(figures_.rank);
  report.changed_at = Get(figures_.changed_at);
  report.in_flight = Get(figures_.in_flight);
  report.in_flight_since = Get(figures_.in_flight_since);
  report.throttled_since = Get(figures_.throttled_since);
  report.device_time = Get(figures_.device_time);
  report.longest_operation = Get(figures_.longest_operation);
  report.typical_operation = Get(figures_.typical_operation);
  report.typical_burst = Get(figures_.typical_burst);
  report.typical_gap = Get(figures_.typical_gap);
  report.throttled_by_window = Get(figures_.throttled_by_window);
  report.throttled_by_budget = Get(figures_.throttled_by_budget);
  report.yielded = Get(figures_.yielded);
  report.memory_bound = Get(figures_.memory_bound);
  report.operations = Get(figures_.operations);
  report.passes = Get(figures_.passes);
  report.partition = Get(figures_.partition);
  const MutexLock lock(&mutex_);
  report.tokens = tokens_view_;
  return report;
}

WorkTotals SchedEntity::totals() const {
  WorkTotals totals;
  totals.device_time = Get(figures_.device_time);
  totals.memory_bound = Get(figures_.bound_time);
  totals.throttled_by_window = Get(figures_.throttled_by_window);
  totals.throttled_by_budget = Get(figures_.throttled_by_budget);
  totals.collecting = Get(figures_.collecting);
  totals.collections = Get(figures_.collections);
  totals.passes = Get(figures_.passes);
  totals.tokens = Get(figures_.tokens);
  totals.late_bursts = Get(figures_.late_bursts);
  totals.late_first_tokens = Get(figures_.late_first_tokens);
  totals.late_tokens = Get(figures_.late_tokens);
  totals.bursts = DurationCounts(bursts_);
  totals.throttles = DurationCounts(throttles_);
  totals.operations = DurationCounts(timed_);
  totals.first_tokens = DurationCounts(first_tokens_);
  totals.tokens_apart = DurationCounts(tokens_apart_);
  return totals;
}

void SchedEntity::Refresh() {
  {
    const MutexLock lock(&mutex_);
    seen_ = version_.load(std::memory_order_relaxed);
    assignment_ = published_;
  }
  budget_ = assignment_.budget;
  if (assignment_.followed && durations_ == nullptr)
    durations_ = std::make_unique<DurationCache>(table_);
  const BoundLimits& idle = assignment_.idle;
  const BoundLimits& contended = assignment_.contended;
  const BoundLimits& tail = assignment_.tail;
  const auto one_place = [&](const BoundLimits& limits) {
    return limits.partition == idle.partition && limits.long_partition == idle.partition &&
           (limits.yielding_block == 0 || limits.yielding_partition == idle.partition);
  };
  takes_turns_ = assignment_.takes_turns || assignment_.shares_device;
  ordinary_beside_processes_ = assignment_.shares_device && !Preempting();
  unlimited_ =
      !assignment_.followed ||
      (!takes_turns_ && idle.window == policy::kForever && contended.window == policy::kForever &&
       tail.window == policy::kForever && budget_ == policy::kForever);
  same_limits_ = !assignment_.followed;
  traced_ = assignment_.trace != nullptr;
  fixed_ = nullptr;
  if (assignment_.migrate_every == 0 &&
      (!assignment_.followed || (one_place(idle) && one_place(contended) && one_place(tail)))) {
    fixed_ = idle.partition;
  }
  fence_every_ = kLongestUnfenced;
  for (const Nanoseconds window : {idle.window, contended.window, tail.window}) {
    if (window > 0) fence_every_ = std::min(fence_every_, window / kFencesPerWindow);
  }
  if (working_ && counted_rank_ != assignment_.rank) {
    const int before = std::exchange(counted_rank_, assignment_.rank);
    Restrict(/*begins=*/true);
    board_.AddBusy(SchedBoard::One(counted_rank_) - SchedBoard::One(before));
  }
  if (takes_turns_ && in_flight_ > 0) {
    // Work that was submitted before there were turns counts, too.
    wants_turn_ = true;
    MayEnter();
  }
  Set(figures_.rank, assignment_.rank);
  if (Get(figures_.partition) == nullptr || fixed_ != nullptr) {
    Set(figures_.partition, idle.partition);
  }
  if (unlimited_) {
    pass_ = false;
    if (throttled_since_ != 0) EndThrottle();
  }
  CountPreempting();
}

void SchedEntity::CountPreempting() {
  if (board_.turn == nullptr) return;
  const bool counts = working_ && Preempting() && (throttled_since_ == 0 || in_flight_ > 0);
  const uint64_t now = counts ? SchedBoard::One(counted_rank_) : 0;
  if (now == preempting_counted_) return;
  board_.turn->AddPreempting(now - preempting_counted_);
  preempting_counted_ = now;
}

void SchedEntity::LookAtThrottle(Nanoseconds now) {
  if (yielding_) Add(figures_.yielded, now - throttle_looked_at_);
  throttle_looked_at_ = now;
  yielding_ = throttled_by_ == Cause::kWindow && Yields() && Waiting() < assignment_.idle.window;
}

bool SchedEntity::Throttle() {
  if (takes_turns_ && !wants_turn_) {
    wants_turn_ = true;
    if (HasRoom()) return true;
  }
  const Nanoseconds now = clock_.NowNanoseconds();
  if (throttled_since_ == 0) {
    throttled_since_ = std::max<Nanoseconds>(now, 1);
    throttled_by_ = budget_ <= 0 ? Cause::kBudget : Cause::kWindow;
    if (throttled_by_ == Cause::kBudget) news_ = News::kNow;
    board_.throttled.fetch_add(1, std::memory_order_relaxed);
    Set(figures_.throttled_since, throttled_since_);
    SetWorking(true);
    CountPreempting();
  }
  LookAtThrottle(now);
  if (now - throttled_since_ < Current().max_throttle || !MayEnter()) return false;
  pass_ = true;
  last_pass_ = now;
  Add<uint64_t>(figures_.passes, 1);
  EndThrottle();
  return true;
}

void SchedEntity::EndThrottle() {
  if (throttled_since_ == 0) return;
  const Nanoseconds now = clock_.NowNanoseconds();
  const Nanoseconds throttled = now - throttled_since_;
  LookAtThrottle(now);
  yielding_ = false;
  Add(throttled_by_ == Cause::kBudget ? figures_.throttled_by_budget : figures_.throttled_by_window,
      throttled);
  throttles_.Add(throttled);
  if (traced()) [[unlikely]] {
    TraceEvent event;
    event.kind = TraceEvent::Kind::kThrottled;
    event.cause = static_cast<uint8_t>(throttled_by_);
    event.at = throttled_since_;
    event.duration = throttled;
    trace_.Add(event);
  }
  throttled_since_ = 0;
  board_.throttled.fetch_sub(1, std::memory_order_relaxed);
  Set<Nanoseconds>(figures_.throttled_since, 0);
  CountPreempting();
}

void SchedEntity::NoteCollection(Nanoseconds since) {
  const Nanoseconds duration = clock_.NowNanoseconds() - since;
  Add(figures_.collecting, duration);
  Add<uint64_t>(figures_.collections, 1);
  if (!traced()) [[likely]]
    return;
  TraceEvent event;
  event.kind = TraceEvent::Kind::kCollection;
  event.at = since;
  event.duration = duration;
  trace_.Add(event);
}

bool SchedEntity::Preempting() const {
  return Get(figures_.bound_urgent) || (assignment_.preempts && !Get(figures_.bound_ordinary));
}

bool SchedEntity::EnterTurn() {
  const bool preempting = Preempting();
  if (assignment_.takes_turns) {
    if (entered_[preempting]) {
      if (entered_as_[preempting] != assignment_.turn_group) return false;
    } else if (board_.EnterTurn(preempting, assignment_.turn_group)) {
      entered_[preempting] = true;
      entered_as_[preempting] = assignment_.turn_group;
    } else {
      return false;
    }
  }
  ordinary_beside_processes_ = assignment_.shares_device && !preempting;
  if (ordinary_beside_processes_) return device_turn_.Enter();
  // It may have waited for the process's turn before it became urgent. Now it would not take the turn.
  if (!unknown_) device_turn_.GiveUp();
  return true;
}

void SchedEntity::LeaveTurn() {
  wants_turn_ = false;
  for (const bool preempting : {false, true}) {
    if (std::exchange(entered_[preempting], false)) board_.LeaveTurn(preempting);
  }
  if (!unknown_) device_turn_.Leave();
}

void SchedEntity::NoteUnknown(bool there) {
  if (there == unknown_) return;
  unknown_ = there;
  if (board_.turn != nullptr) {
    if (there) unknown_counted_ = SchedBoard::One(assignment_.rank);
    board_.turn->AddBusy(there ? unknown_counted_ : -unknown_counted_);
  }
  if (!there && (in_flight_ <= 0 || Preempting())) device_turn_.Leave();
}

void SchedEntity::NoteUrgent(bool there) {
  if (std::exchange(urgent_there_, there) != there) board_.AddUrgent(there ? 1 : -1);
}

void SchedEntity::SetInFlight(Nanoseconds in_flight) {
  if (assignment_.takes_turns && (in_flight_ > 0) != (in_flight > 0)) {
    Set(figures_.in_flight_since, clock_.NowNanoseconds());
  }
  in_flight_ = in_flight;
  Set(figures_.in_flight, in_flight);
  if (throttled_since_ != 0) CountPreempting();
  // long_operation exceeds every window for short operations. So this much work in flight contains
  // a long operation.
  const bool occupies = in_flight > 0 && in_flight >= assignment_.idle.long_operation;
  if (occupies == occupies_) return;
  occupies_ = occupies;
  board_.occupied.fetch_add(occupies ? 1 : -1, std::memory_order_relaxed);
}

const SchedEntity::BoundLimits& SchedEntity::BesideOthers() const {
  return board_.InContentionBelow(assignment_.rank, clock_.NowNanoseconds()) ? assignment_.contended
                                                                             : assignment_.tail;
}

void SchedEntity::Restrict(bool begins) {
  const Nanoseconds typical = Get(figures_.typical_burst);
  const Nanoseconds until = policy::ContentionPhaseEnd(assignment_.contention_phase, changed_at_,
                                                       typical, burst_, disturbed_);
  usual_until_ = until == policy::kForever ? policy::kForever : typical;
  board_.RestrictUntil(counted_rank_, until, begins);
}

Partition& SchedEntity::ChooseByLimits(Kind kind) {
  Partition* chosen;
  if (assignment_.migrate_every != 0 && !assignment_.partitions.empty()) {
    if (++since_move_ >= assignment_.migrate_every) {
      since_move_ = 0;
      ++next_place_;
    }
    chosen = assignment_.partitions[next_place_ % assignment_.partitions.size()];
  } else {
    const BoundLimits& limits = Current();
    chosen = kind == Kind::kShort  ? limits.partition
             : kind == Kind::kLong ? limits.long_partition
                                   : limits.yielding_partition;
  }
  Set(figures_.partition, chosen);
  return *chosen;
}

void SchedEntity::SetWorking(bool working) {
  if (working == working_) return;
  working_ = working;
  const Nanoseconds now = clock_.NowNanoseconds();
  if (working) {
    if (changed_at_ != 0) Follow(figures_.typical_gap, now - changed_at_);
    if (now - changed_at_ >= kRequestPause) {
      typical_request_ = (typical_request_ + request_operations_) / 2;
      request_operations_ = 0;
    }
    changed_at_ = now;
    burst_ = 0;
    disturbed_ = board_.occupied.load(std::memory_order_relaxed) > (occupies_ ? 1 : 0);
    counted_rank_ = assignment_.rank;
    Restrict(/*begins=*/true);
    board_.AddBusy(SchedBoard::One(counted_rank_));
  } else {
    board_.AddBusy(-SchedBoard::One(counted_rank_));
    Follow(figures_.typical_burst, burst_);
    bursts_.Add(now - changed_at_);
    if (Late(now - changed_at_, assignment_.promise.burst)) Add<uint64_t>(figures_.late_bursts, 1);
  }
  changed_at_ = now;
  Set(figures_.changed_at, now);
  Set(figures_.has_work, working);
  CountPreempting();
  news_ = std::max(news_, News::kWork);
}

void SchedEntity::Started(Nanoseconds estimate, bool counts) {
  pass_ = false;
  if (budget_ != policy::kForever) {
    budget_ -= estimate;
    if (budget_ <= 0) news_ = News::kNow;
  }
  if (tokens_.step_begins()) tokens_.Begin(clock_.NowNanoseconds());
  if (tokens_.Work(estimate)) [[unlikely]]
    PublishTokens();
  Add<uint64_t>(figures_.operations, 1);
  Add(figures_.device_time, estimate);
  Follow(figures_.typical_operation, estimate);
  // The figure decays slowly, so that an old operation is forgotten. A training step shows the
  // longest operation again.
  const Nanoseconds longest = Get(figures_.longest_operation);
  Set(figures_.longest_operation, std::max(estimate, longest - longest / 4096));
  if (!counts) {
    parked_ += estimate;
    return;
  }
  AddToBurst(estimate);
}

void SchedEntity::AddToBurst(Nanoseconds estimate) {
  // Work that the gate did not see enters here: copies of the daemon, and work whose wait is over.
  // It does not wait for its turn.
  wants_turn_ = true;
  if (!MayEnter()) device_turn_.Outside();
  SetWorking(true);
  ++request_operations_;
  burst_ += estimate;
  // The burst may be longer than usual.
  if (burst_ > usual_until_) Restrict(/*begins=*/false);
  SetInFlight(in_flight_ + estimate);
}

void SchedEntity::ResultRead() {
  const TokenClock::Token token = tokens_.Read(clock_.NowNanoseconds());
  Add(figures_.tokens, token.counted);
  if (token.apart != 0) {
    tokens_apart_.Add(token.apart);
    if (Late(token.apart, assignment_.promise.token)) Add<uint64_t>(figures_.late_tokens, 1);
  }
  if (token.prefill != 0) {
    first_tokens_.Add(token.prefill);
    if (Late(token.prefill, assignment_.promise.first_token))
      Add<uint64_t>(figures_.late_first_tokens, 1);
  }
  PublishTokens();
}

void SchedEntity::PublishTokens() {
  const policy::TokenView view = tokens_.View();
  const MutexLock lock(&mutex_);
  tokens_view_ = view;
  if (view.tokens != 0) news_ = News::kNow;
}

void SchedEntity::Resumed(Nanoseconds estimate) {
  parked_ -= estimate;
  AddToBurst(estimate);
}

bool SchedEntity::MayBeStopped() const {
  return board_.urgent.load(std::memory_order_relaxed) != 0 ||
         (assignment_.shares_device && board_.turn->OthersUrgent());
}

void SchedEntity::GuardProgress(bool ordinary) {
  using Need = ProgressGuard::Need;
  if (!ordinary) {
    progress_.Pause();
    KeepOrdinary(false);
    return;
  }
  const Nanoseconds now = clock_.NowNanoseconds();
  const Need need =
      progress_.Look(now, {.completions = completions_,
                           .complete = complete_,
                           .in_flight = in_flight_,
                           .may_be_stopped = MayBeStopped(),
                           .waits = assignment_.shares_device && !device_turn_.inside()});
  KeepOrdinary(need == Need::kKeep);
  if (need == Need::kShare) {
    board_.ShareOrdinary(progress_.share_until(), progress_.confirmed());
  } else {
    board_.EndSharing(now);
  }
}

void SchedEntity::KeepOrdinary(bool keep) {
  if (std::exchange(keeps_ordinary_, keep) != keep) board_.keep_ordinary(keep);
}

void SchedEntity::Completed(Nanoseconds estimate) {
  ++completions_;
  complete_ = policy::Plus(complete_, estimate);
  SetInFlight(in_flight_ - estimate);
  if (in_flight_ <= 0) LeaveTurn();
}

void SchedEntity::Idle() {
  LeaveTurn();
  if (throttled_since_ != 0) return;
  if (!unknown_) device_turn_.GiveUp();
  SetWorking(false);
}

void SchedEntity::Forget() {
  EndThrottle();
  SetWorking(false);
  parked_ = 0;
  pass_ = false;
  SetInFlight(0);
  progress_ = {};
  KeepOrdinary(false);
  NoteUnknown(false);
  NoteUrgent(false);
  LeaveTurn();
  device_turn_.GiveUp();
}

}  // namespace detshare
