// One GPU coroutine as the scheduler of its device sees it: its limits and its activity.
//
//     DeviceScheduler --Publish(assignment)--> SchedEntity <--MayRun, Choose, Started-- session's
//            ^------------report()---------------'  |                                   worker
//                                                   +--busy, throttled--> SchedBoard
//
// The worker calls MayRun() before it reads a record. If that returns false, the worker leaves the
// whole session alone for the moment. The worker reports each operation to the entity before it
// submits the operation to the hardware. While work is not followed (the coroutine is alone, or the
// policy does not need it), both calls cost a comparison or two on memory that nobody writes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_turn.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/progress_guard.h"
#include "coroutine_runtime/scheduler_state.h"
#include "coroutine_runtime/token_clock.h"
#include "coroutine_runtime/trace_reference.h"
#include "coroutine_runtime/trace_ring.h"
#include "coroutine_runtime/work_totals.h"
#include "policy/policy.h"
#include "proto/latency_histogram.h"
#include "proto/mutex.h"

namespace detshare {

// The data that the entities of one device publish to each other. Outlives them.
struct alignas(64) SchedBoard {
  // The number of coroutines of each rank that have work: eight bits per rank, rank 0 lowest.
  // Relaxed: it publishes nothing else. A worker that sees a change late submits one more operation
  // to the hardware.
  std::atomic<uint64_t> busy{0};
  // The number of throttled coroutines. Relaxed: workers poll more eagerly because of it, and may
  // start to do so late.
  std::atomic<int> throttled{0};
  // The number of coroutines with a long operation in the hardware. Relaxed: an entity that sees a
  // change late restricts the others for a part of a burst instead of all of it, or the reverse.
  std::atomic<int> occupied{0};
  // For each rank, the time until which its running bursts restrict others
  // (policy::Grant::contention_phase); in the past if there are none. Relaxed, as `busy`.
  alignas(64) std::array<std::atomic<Nanoseconds>, policy::kRanks> contention_until{};

  // The turn group whose work is in the hardware (upper bits) and the number of its coroutines with
  // such work (lowest kCountBits bits); [0] for ordinary work, [1] for urgent work that preempts.
  // Only coroutines that take turns are counted. Acquire and release: work that enters begins after
  // the work of the group before it.
  alignas(64) std::array<std::atomic<uint64_t>, 2> turns{};
  static constexpr int kCountBits = 16;

  // This process's turn on the device; null: no other process uses it. Set before there are entities.
  DeviceTurn* turn = nullptr;

  // The number of coroutines that have work in the urgent time-slice group, as far as their workers have
  // looked. Relaxed, as `busy`.
  std::atomic<int> urgent{0};

  // Device::KeepOrdinary and Device::ShareOrdinary of the device; empty if the device cannot preempt.
  // Set before there are entities.
  std::function<void(bool)> keep_ordinary, share_ordinary;

  // Until when ordinary work shares the device with programs that the daemon does not serve; 0: it does
  // not. Who changes it from or to 0 calls share_ordinary(). It publishes nothing else.
  std::atomic<Nanoseconds> shared_until{0};
  // Until when this is known, and no trial. It publishes nothing else.
  std::atomic<Nanoseconds> native_until{0};

  // A coroutine of some rank begins or ends to have work: adds `change`, which One() gives.
  void AddBusy(uint64_t change) {
    busy.fetch_add(change, std::memory_order_relaxed);
    if (turn != nullptr) turn->AddBusy(change);
  }
  // Coroutines begin or end to have work in the urgent group.
  void AddUrgent(int change) {
    urgent.fetch_add(change, std::memory_order_relaxed);
    if (turn != nullptr) turn->AddUrgent(change);
  }
  // Counts a coroutine of the group. Returns false, and counts nothing, if another group is there.
  bool EnterTurn(bool preempting, uint64_t group);
  void LeaveTurn(bool preempting) { turns[preempting].fetch_sub(1, std::memory_order_release); }

  // Ordinary work shares the device until then, or longer if another coroutine's work needs it, and until a
  // worker with such work sees that the time is over. `until`: above 0. `known`: the others are known to be
  // there.
  void ShareOrdinary(Nanoseconds until, bool known);
  void EndSharing(Nanoseconds now);

  static uint64_t One(int rank) { return uint64_t{1} << (8 * rank); }
  // All ranks below this one.
  static uint64_t Below(int rank) { return One(rank) - 1; }
  // Whether a coroutine of a rank below `rank` has work.
  bool BusyBelow(int rank) const {
    return (busy.load(std::memory_order_relaxed) & Below(rank)) != 0;
  }
  // Whether a coroutine of a rank below `rank` is in the contention phase of its burst.
  bool InContentionBelow(int rank, Nanoseconds now) const;
  // A burst restricts others until this time. `begins`: the burst was not counted in `busy` yet.
  void RestrictUntil(int rank, Nanoseconds until, bool begins);
};
static_assert(policy::kRanks == 8);

// Threading: Publish() and report() from any thread, everything else from the worker's thread.
class alignas(64) SchedEntity {
 public:
  // policy::Limits with partitions instead of their numbers.
  struct BoundLimits {
    Partition* partition = nullptr;
    Partition* long_partition = nullptr;
    Partition* yielding_partition = nullptr;
    Nanoseconds long_operation = policy::kForever;
    Nanoseconds yielding_block = 0;
    Nanoseconds window = policy::kForever;
    Nanoseconds max_throttle = policy::kForever;
  };
  struct Assignment {
    bool followed = false;  // if false, only idle.partition and urgent count
    int rank = 0;
    bool urgent = false;  // policy::Grant
    BoundLimits idle, contended, tail;
    double contention_phase = 1;  // policy::Grant
    // Whether its work waits for that of other turn groups, of which preempting work and all other
    // work have their own. Requires `followed`.
    bool takes_turns = false;
    uint64_t turn_group = 0;  // policy::Grant
    bool preempts = false;    // urgent, and the device's urgent time-slice group is open
    // Whether its ordinary work waits for the process's turn on the device (SchedBoard::turn).
    // Requires `followed`.
    bool shares_device = false;
    // Whether it has its contended limits also while other processes have preempting work of a lower rank.
    // Requires `shares_device`.
    bool yields_to_processes = false;
    // Parked work beyond this time counts as work in flight. On a device that cannot preempt, nothing
    // stops it once its wait is over.
    Nanoseconds max_parked = policy::kForever;
    Nanoseconds budget = policy::kForever;  // from the publication on
    absl::InlinedVector<Partition*, 4> prepare;
    // The partitions of the device, those with fewer SMs first, then the whole device, and last the
    // partition of the urgent time-slice group, if there is one.
    std::vector<Partition*> partitions;
    // If not 0, the coroutine moves to the next partition after this many operations, whatever the
    // limits say.
    uint32_t migrate_every = 0;
    bool awaited = false;  // a client waits for each of its results
    // The latencies promised to the tenant; 0: none. The entity only counts violations.
    struct Promise {
      Nanoseconds burst = 0, first_token = 0, token = 0;
      friend bool operator==(const Promise&, const Promise&) = default;
    } promise;
    // Not null while a trace is taken.
    std::shared_ptr<const TraceReference> trace;
  };
  enum class Cause { kWindow, kBudget };
  // Why the policy should be asked again. kWork: work begins or ends, which can happen with each
  // operation. kNow: something that is rare, or that the coroutine waits for.
  enum class News { kNone, kWork, kNow };

  // `news` is called on the worker's thread. All arguments outlive the entity.
  SchedEntity(SchedBoard& board, DurationTable& durations, const Clock& clock,
              std::function<void(News)> news)
      : board_(board), table_(durations), clock_(clock), news_callback_(std::move(news)) {}
  // The worker no longer uses the entity.
  ~SchedEntity();
  SchedEntity(const SchedEntity&) = delete;
  SchedEntity& operator=(const SchedEntity&) = delete;

  // ---- the scheduler

  // Takes effect at the worker's next record.
  void Publish(Assignment assignment);
  SchedEntityReport report() const;
  WorkTotals totals() const;

  TraceRing& trace() { return trace_; }
  // Durations from the first operation of a burst of work until the burst is complete.
  const LatencyHistogram& bursts() const { return bursts_; }

  // ---- the worker

  // Whether events should be added to trace().
  bool traced() const { return traced_ && trace_.on(); }
  Nanoseconds Now() const { return clock_.NowNanoseconds(); }
  // Whether the worker may read the next record.
  bool MayRun() {
    // Relaxed is enough: Refresh() reads the assignment under the lock.
    if (version_.load(std::memory_order_relaxed) != seen_) [[unlikely]]
      Refresh();
    return unlimited_ || HasRoom();
  }
  // The session has a record that may not be read. Returns true once it was throttled for long
  // enough to continue anyway; then MayRun() lets one operation through. Returns true at once if
  // the session only had to enter its turn group for its first record.
  bool Throttle();
  // The session has no such record any more.
  void EndThrottle();

  // Takes over a new assignment, if there is one.
  void Update() {
    if (version_.load(std::memory_order_relaxed) != seen_) [[unlikely]]
      Refresh();
  }
  // Whether the worker reports operations to the entity.
  bool followed() const { return assignment_.followed; }
  // How an operation delays others. It decides which partition of the limits the operation gets.
  enum class Kind { kShort, kLong, kYielding };
  // Where the next kernel or graph runs.
  Partition& Choose(Kind kind) {
    if (fixed_ != nullptr) [[likely]]
      return *fixed_;
    return ChooseByLimits(kind);
  }
  // The limits at present.
  const BoundLimits& Current() const {
    if (same_limits_) return assignment_.idle;
    if (board_.BusyBelow(assignment_.rank)) return BesideOthers();
    return Yields() ? assignment_.contended : assignment_.idle;
  }
  // Whether work of others that goes first restricts its own at present.
  bool makes_room() const {
    return !same_limits_ && (board_.BusyBelow(assignment_.rank) || Yields());
  }
  // Whether its work goes first in the hardware.
  bool urgent() const { return assignment_.urgent; }
  // Whether its work should run in the urgent time-slice group.
  bool preempts() const { return assignment_.preempts; }
  // The session is bound to the urgent time-slice group or to the ordinary one. Never changes.
  void NoteBoundTo(bool urgent) {
    std::atomic<bool>& figure = urgent ? figures_.bound_urgent : figures_.bound_ordinary;
    if (figure.load(std::memory_order_relaxed)) return;
    figure.store(true, std::memory_order_relaxed);
    CountPreempting();
    news_ = News::kNow;
  }
  // Counts a time, from `since` until now, in which the worker left operations with the client.
  void NoteCollection(Nanoseconds since);
  // Whether an operation of this duration may count as long.
  bool MayBeLong(Nanoseconds estimate) const {
    return fixed_ == nullptr && estimate >= Current().long_operation;
  }
  // Where another kind of operation runs; null: where its stream is.
  Partition* ChooseForOther() {
    return assignment_.migrate_every == 0 ? nullptr : &ChooseByLimits(Kind::kShort);
  }
  // Looks up one occurrence of an operation; only while work is followed. The estimate is for the
  // partition of short operations.
  DurationCache::Lookup Look(const OperationKey& key, const OperationTraits& traits) {
    return durations_->Look(key, traits, SizeClassOf(partition().sm_count(), table_.sm_count()));
  }
  int SizeClass(const Partition& partition) const {
    return SizeClassOf(partition.sm_count(), table_.sm_count());
  }
  // Whether other coroutines also have work.
  bool contended() const {
    return board_.busy.load(std::memory_order_relaxed) !=
               (working_ ? SchedBoard::One(counted_rank_) : 0) ||
           (assignment_.shares_device && board_.turn->OthersBusy());
  }
  // The present partition of short operations.
  Partition& partition() const { return *Current().partition; }
  const Assignment& assignment() const { return assignment_; }
  // The amount of a stream's work after which its progress should be checked.
  Nanoseconds fence_every() const { return fence_every_; }

  // An operation is about to be submitted. `counts`: it can make progress by itself.
  void Started(Nanoseconds estimate, bool counts);
  // For a started operation: the part of its time that is bound by memory; below 0 if unknown.
  void NoteBound(Nanoseconds estimate, double memory_bound) {
    if (memory_bound < 0) return;
    known_time_ += static_cast<double>(estimate);
    bound_time_ += static_cast<double>(estimate) * memory_bound;
    figures_.bound_time.store(static_cast<Nanoseconds>(bound_time_), std::memory_order_relaxed);
    figures_.memory_bound.store(bound_time_ / known_time_, std::memory_order_relaxed);
  }
  // Whether work that has just ended may have waited for an operation that passed the limits: the
  // client goes on with the result of that operation, and ends the wait.
  bool MayHaveAwaitedPass() const {
    return last_pass_ != 0 && clock_.NowNanoseconds() - last_pass_ < kPassEffect;
  }
  // Adds the duration of an operation on the device.
  void NoteTime(Nanoseconds time) { timed_.Add(time); }
  // A started operation that was counted, and then as completed because its submission waits, is about
  // to be submitted.
  void Restarted(Nanoseconds estimate) {
    pass_ = false;
    complete_ -= estimate;
    AddToBurst(estimate);
  }
  // Parked work can make progress from this call on.
  void Resumed(Nanoseconds estimate);
  // Whether the device has ordinary work of which only that is known. It may be running, or wait for the
  // client. So it takes turns with other processes, and restricts no session of this process.
  void NoteUnknown(bool there);
  // Whether the urgent group has work of the session.
  void NoteUrgent(bool there);
  // The client has the result for which it waited: bytes that were copied to the host.
  void ResultRead();
  // Work is complete.
  void Completed(Nanoseconds estimate);
  // Work may still be in flight. Called every few milliseconds meanwhile. `ordinary`: some of it, or what
  // it waits for, may be in the ordinary time-slice group.
  void Proceed(bool ordinary) {
    // Work that did not wait for its turn waits for it in the hardware.
    if (in_flight_ > 0 && !MayEnter()) device_turn_.Outside();
    if (unknown_ && assignment_.shares_device && !device_turn_.Enter()) device_turn_.Outside();
    device_turn_.Proceed();
    if (board_.keep_ordinary) GuardProgress(ordinary);
  }
  // No work that counts is in flight any more.
  void Idle();
  // The work is no longer followed. Forgets all work in flight.
  void Forget();
  // Notifies the scheduler if there is news.
  void NotifyScheduler() {
    if (news_ != News::kNone) [[unlikely]]
      news_callback_(std::exchange(news_, News::kNone));
  }
  Nanoseconds in_flight() const { return in_flight_; }
  // The number of followed operations so far, and the sum of their estimates.
  struct Submitted {
    uint64_t operations = 0;
    Nanoseconds device_time = 0;
  };
  Submitted submitted() const {
    return {figures_.operations.load(std::memory_order_relaxed),
            figures_.device_time.load(std::memory_order_relaxed)};
  }
  // Whether the coroutine has work.
  bool working() const { return working_; }
  // Whether its requests consist of many operations, between which the device may run dry. A
  // request ends with a long pause.
  bool ManyOperations() const {
    return std::max(typical_request_, request_operations_) >= kManyOperations;
  }
  // Whether another coroutine of the device is throttled, and so may wait for this one's work to
  // end.
  bool others_throttled() const {
    return board_.throttled.load(std::memory_order_relaxed) > (throttled_since_ != 0 ? 1 : 0);
  }

 private:
  void Refresh();
  // Whether preempting work of other processes goes before its own.
  bool Yields() const {
    return assignment_.yields_to_processes &&
           board_.turn->OthersPreempt(SchedBoard::Below(assignment_.rank));
  }
  // Shows other processes whether it has preempting work that is not throttled.
  void CountPreempting();
  // Counts the time since the last look as time in which it yielded, if it did.
  void LookAtThrottle(Nanoseconds now);
  bool HasRoom() {
    if (pass_) return MayEnter();
    if (!InWindow() || budget_ <= 0 || !MayEnter()) return false;
    if (throttled_since_ != 0) EndThrottle();
    return true;
  }
  // Enters the coroutine's turn group and the process's turn, so that it may submit work. Returns
  // false while work of another group or process is in the hardware, or work that it submitted
  // itself for another group. A session without a record does not enter, because it would keep the
  // others out.
  bool MayEnter() { return !takes_turns_ || (wants_turn_ && EnterTurn()); }
  bool EnterTurn();
  // Whether its work runs in the urgent time-slice group.
  bool Preempting() const;
  void LeaveTurn();
  // Whether more work may be in flight.
  bool InWindow() const {
    const Nanoseconds waiting = Waiting();
    if (waiting >= Current().window) return false;
    return !ordinary_beside_processes_ || waiting < DeviceTurn::kWindow || board_.turn->Quiet();
  }
  // The work that counts against the window. Parked work counts only beyond max_parked.
  Nanoseconds Waiting() const {
    return in_flight_ + std::max<Nanoseconds>(parked_ - assignment_.max_parked, 0);
  }
  // An operation that can make progress is added.
  void AddToBurst(Nanoseconds estimate);
  // Sets the sum of the work in flight.
  void SetInFlight(Nanoseconds in_flight);
  // The limits while a coroutine of a lower rank has work.
  const BoundLimits& BesideOthers() const;
  // Publishes how long the burst restricts others, from the known length of bursts.
  void Restrict(bool begins);
  Partition& ChooseByLimits(Kind kind);
  void PublishTokens();
  void SetWorking(bool working);
  // Gives ordinary work that makes no progress what it needs (progress_guard.h).
  void GuardProgress(bool ordinary);
  // Whether there is urgent work, of any session of the daemon, which stops ordinary work.
  bool MayBeStopped() const;
  void KeepOrdinary(bool keep);

  static constexpr Nanoseconds kPassEffect = 25 * policy::kMillisecond;
  static constexpr Nanoseconds kRequestPause = policy::kMillisecond;
  static constexpr uint32_t kManyOperations = 8;

  // ---- used by the worker only
  SchedBoard& board_;
  DurationTable& table_;
  const Clock& clock_;
  const std::function<void(News)> news_callback_;
  Assignment assignment_;
  uint64_t seen_ = 0;         // version of assignment_
  bool unlimited_ = true;     // no window, no budget
  bool same_limits_ = true;   // the idle limits always apply
  bool takes_turns_ = false;  // with groups of this process, or with other processes
  bool ordinary_beside_processes_ = false;
  bool traced_ = false;
  Partition* fixed_ = nullptr;  // where everything runs, if that is one partition
  Nanoseconds fence_every_ = policy::kForever;
  Nanoseconds budget_ = policy::kForever;  // the remaining budget
  Nanoseconds in_flight_ = 0, parked_ = 0;
  bool occupies_ = false;                     // counted in board_.occupied
  bool disturbed_ = false;                    // the running burst began beside a long operation
  std::unique_ptr<DurationCache> durations_;  // set once work is followed
  TokenClock tokens_;
  Nanoseconds throttled_since_ = 0;  // 0: not throttled
  Cause throttled_by_ = Cause::kWindow;
  bool yielding_ = false;  // at the latest look
  Nanoseconds throttle_looked_at_ = 0;
  uint64_t preempting_counted_ = 0;  // by CountPreempting()
  bool pass_ = false;                // one operation may pass, whatever the limits say
  Nanoseconds last_pass_ = 0;        // when it was last so; 0: never
  // Whether it is counted in board_.turns, and for which group. It is counted from the call that
  // lets it submit work until that work is complete.
  bool wants_turn_ = false;  // the session has a record, or work in the hardware
  DeviceTurn::Member device_turn_{board_.turn};
  bool unknown_ = false;          // NoteUnknown()
  uint64_t unknown_counted_ = 0;  // for it, in DeviceTurn's words
  bool urgent_there_ = false;     // counted by SchedBoard::AddUrgent()
  std::array<bool, 2> entered_{};
  std::array<uint64_t, 2> entered_as_{};
  ProgressGuard progress_;
  uint64_t completions_ = 0;  // how often work was completed
  Nanoseconds complete_ = 0;  // the estimates of all that work
  bool keeps_ordinary_ = false;
  bool working_ = false;  // counted in board_.busy, with counted_rank_
  int counted_rank_ = 0;
  News news_ = News::kNone;
  uint32_t since_move_ = 0, next_place_ = 0;
  // The operations since the latest pause of kRequestPause, and those of a typical request.
  uint32_t request_operations_ = 0, typical_request_ = 0;
  double known_time_ = 0, bound_time_ = 0;
  Nanoseconds burst_ = 0;        // work of the running burst
  Nanoseconds usual_until_ = 0;  // a burst beyond this may restrict others for longer
  Nanoseconds changed_at_ = 0;   // when working_ changed

  TraceRing trace_;
  LatencyHistogram bursts_, throttles_, timed_, first_tokens_, tokens_apart_;

  // ---- published assignments. Publish() stores the version after the assignment, under the lock
  // that the worker takes to read the assignment. So the version is relaxed.
  alignas(64) std::atomic<uint64_t> version_{0};
  mutable Mutex mutex_;
  Assignment published_ ABSL_GUARDED_BY(mutex_);
  policy::TokenView tokens_view_ ABSL_GUARDED_BY(mutex_);

  // ---- the figures of report(). Only the worker stores them. Relaxed: each figure is independent.
  struct alignas(64) Figures {
    std::atomic<bool> has_work{false}, bound_ordinary{false}, bound_urgent{false};
    std::atomic<int> rank{0};
    std::atomic<Nanoseconds> changed_at{0}, in_flight{0}, in_flight_since{0}, throttled_since{0},
        device_time{0}, longest_operation{0}, typical_operation{0}, typical_burst{0},
        typical_gap{0}, throttled_by_window{0}, throttled_by_budget{0}, yielded{0}, bound_time{0},
        collecting{0};
    std::atomic<uint64_t> operations{0}, passes{0}, tokens{0}, collections{0};
    std::atomic<uint64_t> late_bursts{0}, late_first_tokens{0}, late_tokens{0};
    std::atomic<double> memory_bound{-1};
    std::atomic<Partition*> partition{nullptr};
  };
  Figures figures_;
};

}  // namespace detshare
