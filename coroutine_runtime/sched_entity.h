// One GPU coroutine as the scheduler of its device sees it: what it may do, and what it does.
//
//     DeviceScheduler --Publish(orders)-->  SchedEntity  <--MayRun, Choose, Started--  the
//     session's worker
//            ^------------report()----------'  |------------busy, held-------->  SchedBoard
//
// The worker asks MayRun() before it reads a record: closed means that the whole session is left
// alone for the moment. Then each operation is told to the entity before it is given to the hardware.
// Where work is not followed (the coroutine is alone, or the policy does not care) both are a
// comparison or two on memory that nobody writes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/scheduler_state.h"
#include "coroutine_runtime/token_clock.h"
#include "coroutine_runtime/trace_reference.h"
#include "coroutine_runtime/trace_ring.h"
#include "coroutine_runtime/work_totals.h"
#include "policy/policy.h"
#include "proto/latency_histogram.h"

namespace detshare {

// What the entities of one device tell each other. Outlives them.
struct alignas(64) SchedBoard {
  // How many coroutines of each rank have work: eight bits a rank, rank 0 lowest. Relaxed: it
  // publishes nothing else, and who sees it late gives one more operation to the hardware.
  std::atomic<uint64_t> busy{0};
  // Coroutines that are throttled. Relaxed: whoever polls more eagerly because of it may do so late.
  std::atomic<int> throttled{0};
  // Coroutines with a long operation in the hardware. Relaxed: who sees it late restricts the others
  // for a part of a burst instead of all of it, or the other way round.
  std::atomic<int> occupied{0};
  // For each rank, until when the bursts that are running restrict others (policy::Grant::contention_phase);
  // of the past when there are none. Relaxed, as `busy`.
  alignas(64) std::array<std::atomic<Nanoseconds>, policy::kRanks> contention_until{};

  static uint64_t One(int rank) { return uint64_t{1} << (8 * rank); }
  // Whether a coroutine of a rank below `rank` has work.
  bool BusyBelow(int rank) const {
    return (busy.load(std::memory_order_relaxed) & (One(rank) - 1)) != 0;
  }
  // Whether one of these is in the contention phase of its burst.
  bool InContentionBelow(int rank, Nanoseconds now) const;
  // A burst restricts until then. `begins`: it was not counted in `busy` yet.
  void RestrictUntil(int rank, Nanoseconds until, bool begins);
};
static_assert(policy::kRanks == 8);

// Threading: Publish() and report() from any thread, everything else from the worker's.
class alignas(64) SchedEntity {
 public:
  // policy::Limits with partitions for their numbers.
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
    bool followed = false;  // else only idle.partition and urgent count
    int rank = 0;
    bool urgent = false;  // policy::Grant
    BoundLimits idle, contended, tail;
    double contention_phase = 1;            // policy::Grant
    Nanoseconds budget = policy::kForever;  // from now on
    absl::InlinedVector<Partition*, 4> prepare;
    // Of the device, those with fewer SMs first, the whole device last.
    std::vector<Partition*> partitions;
    // Not 0: every so many operations go to the next of the partitions, whatever the limits say.
    uint32_t migrate_every = 0;
    bool awaited = false;  // somebody waits for each of its results
    // What the tenant is promised; 0: nothing. Only counted here.
    struct Promise {
      Nanoseconds burst = 0, first_token = 0, token = 0;
      friend bool operator==(const Promise&, const Promise&) = default;
    } promise;
    // Not null: what happens is noted down.
    std::shared_ptr<const TraceReference> trace;
  };
  enum class Cause { kWindow, kBudget };

  // `news` is called on the worker's thread when the policy should be asked again. All outlive the
  // entity.
  SchedEntity(SchedBoard& board, DurationTable& durations, const Clock& clock,
              std::function<void()> news)
      : board_(board), table_(durations), clock_(clock), news_callback_(std::move(news)) {}
  // The worker does not use it any more.
  ~SchedEntity();
  SchedEntity(const SchedEntity&) = delete;
  SchedEntity& operator=(const SchedEntity&) = delete;

  // ---- the scheduler

  // In force from the worker's next record on.
  void Publish(Assignment assignment);
  SchedEntityReport report() const;
  WorkTotals totals() const;

  TraceRing& trace() { return trace_; }
  // From the first operation of a burst of work until it was complete.
  const LatencyHistogram& bursts() const { return bursts_; }

  // ---- the worker

  // Whether what happens is to be noted in trace().
  bool traced() const { return traced_ && trace_.on(); }
  Nanoseconds Now() const { return clock_.NowNanoseconds(); }
  // Whether the next record may be read.
  bool MayRun() {
    // Acquire is not needed for what the number stands for, which is read under the lock.
    if (version_.load(std::memory_order_relaxed) != seen_) [[unlikely]]
      Refresh();
    return unlimited_ || HasRoom();
  }
  // There is a record that may not be read. True when it was throttled for long enough to go all the
  // same: then MayRun() lets one operation through.
  bool Throttle();
  // There is none any more.
  void EndThrottle();

  // Takes new orders, if there are any.
  void Update() {
    if (version_.load(std::memory_order_relaxed) != seen_) [[unlikely]]
      Refresh();
  }
  // Whether operations are to be told.
  bool followed() const { return assignment_.followed; }
  // How an operation delays others; which of the partitions of the limits it has.
  enum class Kind { kShort, kLong, kYielding };
  // Where the next operation runs, a kernel or graph.
  Partition& Choose(Kind kind) {
    if (fixed_ != nullptr) [[likely]]
      return *fixed_;
    return ChooseByLimits(kind);
  }
  // The limits of this moment.
  const BoundLimits& Current() const {
    return same_limits_ || !board_.BusyBelow(assignment_.rank) ? assignment_.idle : BesideOthers();
  }
  // Whether its work goes first in the hardware.
  bool urgent() const { return assignment_.urgent; }
  // Whether an operation of this duration could be a long one.
  bool MayBeLong(Nanoseconds estimate) const {
    return fixed_ == nullptr && estimate >= Current().long_operation;
  }
  // Where an operation of another kind runs; null where its stream is.
  Partition* ChooseForOther() {
    return assignment_.migrate_every == 0 ? nullptr : &ChooseByLimits(Kind::kShort);
  }
  // One occurrence of an operation; only while work is followed. The estimate is for the partition
  // of short operations.
  DurationCache::Lookup Look(const OperationKey& key, const OperationTraits& traits) {
    return durations_->Look(key, traits, SizeClassOf(partition().sm_count(), table_.sm_count()));
  }
  int SizeClass(const Partition& partition) const {
    return SizeClassOf(partition.sm_count(), table_.sm_count());
  }
  // Whether others have work, too.
  bool contended() const {
    return board_.busy.load(std::memory_order_relaxed) !=
           (working_ ? SchedBoard::One(counted_rank_) : 0);
  }
  // The partition of short operations at this moment.
  Partition& partition() const { return *Current().partition; }
  const Assignment& assignment() const { return assignment_; }
  // After how much work of a stream its progress is to be seen.
  Nanoseconds fence_every() const { return fence_every_; }

  // An operation is about to be given to the hardware. `counts`: it can make progress by itself.
  void Started(Nanoseconds estimate, bool counts);
  // Of one that was started: which part of its time is bound by memory; below 0: not known.
  void NoteBound(Nanoseconds estimate, double memory_bound) {
    if (memory_bound < 0) return;
    known_time_ += static_cast<double>(estimate);
    bound_time_ += static_cast<double>(estimate) * memory_bound;
    figures_.bound_time.store(static_cast<Nanoseconds>(bound_time_), std::memory_order_relaxed);
    figures_.memory_bound.store(bound_time_ / known_time_, std::memory_order_relaxed);
  }
  // How long an operation took on the device.
  void NoteTime(Nanoseconds time) { timed_.Add(time); }
  // Parked work can make progress now.
  void Resumed(Nanoseconds estimate);
  // The client has what it waited for: bytes that were copied to the host.
  void ResultRead();
  // Work is complete.
  void Completed(Nanoseconds estimate);
  // Nothing that counts is in flight any more.
  void Idle();
  // Followed no longer: whatever was in flight is forgotten.
  void Forget();
  // Tells the scheduler, if there is something to tell.
  void NotifyScheduler() {
    if (news_) [[unlikely]] {
      news_ = false;
      news_callback_();
    }
  }
  Nanoseconds in_flight() const { return in_flight_; }
  // Whether somebody on the device is throttled, and so may wait for this coroutine's work to end.
  bool others_throttled() const {
    return board_.throttled.load(std::memory_order_relaxed) > (throttled_since_ != 0 ? 1 : 0);
  }

 private:
  void Refresh();
  bool HasRoom() {
    if (pass_) return true;
    if (Waiting() >= Current().window || budget_ <= 0) return false;
    if (throttled_since_ != 0) EndThrottle();
    return true;
  }
  // What counts against the window: parked work does not, but for what is too much of it.
  Nanoseconds Waiting() const {
    return parked_ > kMaxParked ? in_flight_ + (parked_ - kMaxParked) : in_flight_;
  }
  // An operation can make progress.
  void AddToBurst(Nanoseconds estimate);
  // What is in flight is another sum.
  void SetInFlight(Nanoseconds in_flight);
  // The limits while somebody of a lower rank has work.
  const BoundLimits& BesideOthers() const;
  // Tells others how long the burst restricts them, by what is known of its length.
  void Restrict(bool begins);
  Partition& ChooseByLimits(Kind kind);
  void PublishTokens();
  void SetWorking(bool working);

  static constexpr Nanoseconds kMaxParked = 10 * policy::kMillisecond;

  // ---- the worker's own
  SchedBoard& board_;
  DurationTable& table_;
  const Clock& clock_;
  const std::function<void()> news_callback_;
  Assignment assignment_;
  uint64_t seen_ = 0;        // version of assignment_
  bool unlimited_ = true;    // no window, no budget
  bool same_limits_ = true;  // in any case
  bool traced_ = false;
  Partition* fixed_ = nullptr;  // where everything runs, if that is one place
  Nanoseconds fence_every_ = policy::kForever;
  Nanoseconds budget_ = policy::kForever;  // what is left
  Nanoseconds in_flight_ = 0, parked_ = 0;
  bool occupies_ = false;   // counted in board_.occupied
  bool disturbed_ = false;  // the burst that is running began beside a long operation
  std::unique_ptr<DurationCache> durations_;  // once work is followed
  TokenClock tokens_;
  Nanoseconds throttled_since_ = 0;  // 0: not held
  Cause throttled_by_ = Cause::kWindow;
  bool pass_ = false;     // one operation may go, whatever the limits say
  bool working_ = false;  // counted in board_.busy, with the rank below
  int counted_rank_ = 0;
  bool news_ = false;
  uint32_t since_move_ = 0, next_place_ = 0;
  double known_time_ = 0, bound_time_ = 0;
  Nanoseconds burst_ = 0;        // of the burst that is running
  Nanoseconds usual_until_ = 0;  // a longer one may restrict others for longer
  Nanoseconds changed_at_ = 0;   // of working_

  TraceRing trace_;
  LatencyHistogram bursts_, throttles_, timed_, first_tokens_, tokens_apart_;

  // ---- orders on their way. The number is stored after them, under the lock that the worker takes
  // to read them; so relaxed.
  alignas(64) std::atomic<uint64_t> version_{0};
  mutable std::mutex mutex_;
  Assignment published_;           // guarded by mutex_
  policy::TokenView tokens_view_;  // guarded by mutex_

  // ---- what report() says. Stored by the worker only; relaxed: each is a figure by itself.
  struct alignas(64) Figures {
    std::atomic<bool> has_work{false};
    std::atomic<int> rank{0};
    std::atomic<Nanoseconds> changed_at{0}, in_flight{0}, throttled_since{0}, device_time{0},
        longest_operation{0}, typical_operation{0}, typical_burst{0}, typical_gap{0},
        throttled_by_window{0}, throttled_by_budget{0}, bound_time{0};
    std::atomic<uint64_t> operations{0}, passes{0}, tokens{0};
    std::atomic<uint64_t> late_bursts{0}, late_first_tokens{0}, late_tokens{0};
    std::atomic<double> memory_bound{-1};
    std::atomic<Partition*> partition{nullptr};
  };
  Figures figures_;
};

}  // namespace detshare
