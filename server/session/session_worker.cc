#include "server/session/session_worker.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/status_cuda.h"
#include "proto/call_parts.h"
#include "proto/cpu_load.h"
#include "proto/driver_api/driver_api_ops.h"
#include "proto/driver_api/server_dispatch.h"
#include "server/base/logging.h"
#include "server/base/thread_scheduling.h"
#include "server/session/code_table.h"
#include "server/session/pinned_memory.h"
#include "server/session/server_options.h"
#include "server/session/session.h"
#include "server/session/session_driver.h"
#include "server/session/session_memory.h"
#include "server/session/session_swap.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

constexpr int kBatch = 64;  // records read before the worker checks its other duties
// The spin time while the client waits for each result. The client's pauses are short, and waking a
// sleeping thread can take longer than the requested work. 20 ms would be too short: when pauses are
// exponential with a mean of 5 ms, 2 % of them are longer and would determine the p99.
constexpr milliseconds kAwaitedSpin(100);
// The same while all CPUs are busy and the worker wakes soon. Client calls that belong together have
// shorter gaps.
constexpr microseconds kPromptSpin(50);
// Sleep times while a coroutine waits for a fence whose writing does not wake the worker
// (AddressSpace::Announce).
constexpr microseconds kShortestFenceSleep(20);
constexpr microseconds kLongestFenceSleep(50);
// The sleep time while parked work waits for the client. The client wakes the worker, but a client of
// an earlier version does not.
constexpr milliseconds kClientSleep(5);
// After this time without a record, the worker assumes that the client has submitted all its work.
constexpr microseconds kSubmissionPause(20);
// Spin and sleep times while the session is throttled. Nothing wakes the worker when the throttle
// ends. A throttled session has only a few operations in the hardware, so the device runs out of
// work when the worker notices a completed operation late.
constexpr microseconds kThrottledSpin(5000);
constexpr microseconds kThrottledSleep(20);
// The sleep time while the queued work takes too much memory. Nothing wakes the worker when some of
// it ends. What is queued lasts the device much longer than this.
constexpr milliseconds kFullSleep(1);
// Faults and the scheduler do not wake the worker either. It looks at them every kActiveSleep until
// kActiveTime after the last work, then every kRestlessSleep until all work is known to be complete.
constexpr milliseconds kActiveSleep(5);
constexpr seconds kActiveTime(2);
constexpr milliseconds kRestlessSleep(50);
// The longest time from the removal of a session's file to the order to end.
constexpr seconds kStopTimeout(1);

// Whether the operation gives the hardware work of the program. All others are never throttled:
// natively they wait for nobody's turn, and a throttled session's client must learn of the end of the
// work that was submitted before.
bool GivesWork(uint16_t op) {
  switch (static_cast<Op>(op)) {
    case Op::cuGraphLaunch:
    case Op::cuGraphUpload:
    case Op::cuLaunchHostFunc:
    case Op::cuLaunchKernelEx:
    case Op::cuMemcpy3DAsync_v2:
    case Op::cuMemcpyAsync:
    case Op::cuMemPrefetchAsync_v2:
    case Op::cuMemsetD2D32Async:
    case Op::cuStreamBatchMemOp_v2:
    case Op::cuStreamWaitEvent:
      return true;
    default:
      return op == kOpPadding;  // what follows is not known yet
  }
}

// A session whose waiting work took this much memory gives it back to the system. To look for free
// pages takes milliseconds, so it happens only then, and while the session has no work.
constexpr uint64_t kMuchMemory = 16 << 20;

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns how long a worker polls after its last work. `full`: all CPUs are busy. `awaited`: the client
// waits for each result; such a worker polls also while all CPUs are busy, unless it is `prompt`: it
// wakes as soon as the client has work. Others poll then only until the client has paused: a shorter
// gap between two operations does not end a turn.
microseconds SpinTime(microseconds usual, bool awaited, bool full, bool prompt) {
  if (usual.count() == 0) return usual;
  if (awaited) return prompt ? microseconds(kPromptSpin) : microseconds(kAwaitedSpin);
  return full ? std::min(usual, kSubmissionPause) : usual;
}

// The CPU where the client last woke the worker; -1 if it is unknown.
int ClientCpu(const SessionHeader& header) {
  const uint32_t cpu = header.client_cpu.load(std::memory_order_relaxed);
  return cpu <= CPU_SETSIZE ? static_cast<int>(cpu) - 1 : -1;
}

}  // namespace

SessionWorker::SessionWorker(SessionConfig config, const ServerOptions& options, Events events)
    : config_(std::move(config)),
      options_(std::make_unique<const ServerOptions>(options)),
      events_(std::move(events)),
      payloads_(std::make_shared<Quota>(kMaxCallBytes, [](const Quota&, uint64_t) {
        return CudaError(kCudaErrorOutOfMemory, "the session's calls take all room for them");
      })) {}

SessionWorker::~SessionWorker() {
  if (thread_.joinable()) thread_.join();
}

const SessionLimits& SessionWorker::limits() const { return options_->limits; }

void SessionWorker::Start() {
  thread_ = std::thread([this] { Run(); });
}

void SessionWorker::End(int result, const std::string& reason, bool violation) {
  const MutexLock lock(&mutex_);
  if (end_reason_.empty()) {
    end_result_ = result;
    end_reason_ = reason;
    end_violation_ = violation;
  }
  stop_.store(true, std::memory_order_release);
  if (driver_ == nullptr) return;
  // The worker itself finds violations, and it waits for nothing at that point.
  if (!violation) driver_->Interrupt(result);
  driver_->session().reader().Wake();
}

void SessionWorker::Call(ControlCall call) {
  {
    const MutexLock lock(&mutex_);
    if (!rejecting_ && calls_.size() < options_->limits.calls) {
      calls_.push_back(std::move(call));
      has_calls_.store(true, std::memory_order_release);
      new_calls_.store(true, std::memory_order_release);
      if (driver_ != nullptr) driver_->session().reader().Wake();
      return;
    }
  }
  call.done(kCudaErrorNotPermitted, "");
}

bool SessionWorker::violated() const {
  const MutexLock lock(&mutex_);
  return end_violation_;
}

SessionCounters SessionWorker::counters() const {
  const MutexLock lock(&mutex_);
  return driver_ != nullptr ? driver_->counters() : last_counters_;
}

std::vector<SessionDeviceUse> SessionWorker::device_use() const {
  const MutexLock lock(&mutex_);
  return driver_ != nullptr ? driver_->device_use() : std::vector<SessionDeviceUse>();
}

std::optional<LongReplies::Taken> SessionWorker::TakeReply(uint32_t slot) {
  const MutexLock lock(&mutex_);
  if (driver_ == nullptr) return std::nullopt;
  return driver_->session().long_replies().Take(slot);
}

std::shared_ptr<Quota> SessionWorker::replies() const {
  const MutexLock lock(&mutex_);
  return driver_ != nullptr ? driver_->session().long_replies().quota() : nullptr;
}

void SessionWorker::Run() {
  pthread_setname_np(pthread_self(), absl::StrCat("session-", config_.id).substr(0, 15).c_str());
  const LogScope scope(config_.id, config_.tenant);
  // The default timer slack would lengthen each timed sleep by up to 50 us. Set it to 1 us.
  prctl(PR_SET_TIMERSLACK, 1000);
  ThreadScheduling scheduling;

  absl::StatusOr<std::unique_ptr<SessionDriver>> opened = SessionDriver::Open(config_, *options_);
  if (!opened.ok()) {
    LogError(config_.label, " refused: ", std::string(opened.status().message()));
    state_.store(State::kFinished, std::memory_order_release);
    events_.opened(opened.status(), 0);
    RejectCalls(kCudaErrorSystemNotReady);
    events_.finished();
    return;
  }
  SessionDriver& driver = **opened;
  Session& session = driver.session();
  {
    const MutexLock lock(&mutex_);
    driver_ = *std::move(opened);
  }
  session.OnLimit(events_.limited);
  state_.store(State::kRunning, std::memory_order_release);
  LogInfo(config_.label, " begins");
  events_.opened(absl::OkStatus(), session.region().file_bytes());

  Loop(driver, scheduling);
  scheduling.SetPrompt(false);
  SetCalm(false);

  const bool runs_on = driver.HasWork();
  if (runs_on) {
    runs_on_since_ns_.store(SteadyClock::now().time_since_epoch() / std::chrono::nanoseconds(1),
                            std::memory_order_relaxed);
  }
  state_.store(State::kEnding, std::memory_order_release);
  if (runs_on && events_.runs_on) events_.runs_on();
  int result = 0;
  std::string reason;
  bool violation = false;
  {
    const MutexLock lock(&mutex_);
    result = end_result_;
    reason = end_reason_;
    violation = end_violation_;
  }
  if (violation) {
    LogError(config_.label, " is ended: ", reason);
  } else {
    LogInfo(config_.label, " ends: ", reason);
  }
  session.Close(result);
  RejectCalls(session.sticky_error());
  events_.ended(session.sticky_error(), reason);
  driver.Abandon();
  const bool had_much =
      driver.backlog().TakePeak() >= kMuchMemory || session.code().received_bytes() >= kMuchMemory;
  std::unique_ptr<SessionDriver> dying;
  {
    const MutexLock lock(&mutex_);
    last_counters_ = driver_->counters();
    last_counters_.device_memory = last_counters_.pinned_memory = 0;
    dying = std::move(driver_);
  }
  dying.reset();
  // Before the daemon learns that the session is calm: it looks once more then.
  runs_on_since_ns_.store(0, std::memory_order_relaxed);
  if (had_much) malloc_trim(0);
  SetCalm(true);
  LogDebug(config_.label, " is gone");
  state_.store(State::kFinished, std::memory_order_release);
  events_.finished();
}

std::chrono::nanoseconds SessionWorker::runs_on_for() const {
  const int64_t since = runs_on_since_ns_.load(std::memory_order_relaxed);
  if (since == 0 || state() == State::kFinished) return std::chrono::nanoseconds(0);
  return SteadyClock::now().time_since_epoch() - std::chrono::nanoseconds(since);
}

// What the worker remembers of its pauses from one round to the next.
struct SessionWorker::Pauses {
  ThreadScheduling& scheduling;
  WakeUps wake_ups;
  Alternation alternation;
  uint64_t replies = 0;                  // before the last wake-up
  bool awaited = false;                  // as the client knows it
  SteadyClock::time_point idle_since{};  // time of the first idle round; zero while busy
  SteadyClock::time_point active_until = SteadyClock::now() + kActiveTime;
  microseconds fence_sleep = kShortestFenceSleep;
  bool worked = true;    // whether records or calls came since active_until was set
  bool watched = false;  // whether WatchIdle() covers all work of the client so far

  void NoteWork(bool of_client) {
    if (of_client) {
      worked = true;
      watched = false;
    }
    idle_since = {};
    fence_sleep = kShortestFenceSleep;
  }
  // Returns since when the worker is idle.
  SteadyClock::duration NoteIdle(SteadyClock::time_point now) {
    if (idle_since == SteadyClock::time_point{}) {
      idle_since = now;
      if (worked) active_until = now + kActiveTime;
      worked = false;
    }
    return now - idle_since;
  }
};

void SessionWorker::Loop(SessionDriver& driver, ThreadScheduling& scheduling) {
  Session& session = driver.session();
  Pauses pauses{scheduling};
  SetCalm(false);
  while (!stop_.load(std::memory_order_acquire)) {
    const Done done = Round(driver);
    if (!session.violation().empty()) {
      End(kCudaErrorIllegalState, session.violation(), true);
      return;
    }
    if (done.client) {
      driver.swap().SetWorking();
      if (calm_) SetCalm(false);
    }
    if (done.client || done.tasks) {
      pauses.NoteWork(done.client);
    } else if (session.region().complete()) [[likely]] {
      Pause(driver, done, pauses);
    } else if (!AllocateMore(session)) {
      return;
    }
  }
}

bool SessionWorker::AllocateMore(Session& session) {
  const absl::Status space = session.region().AllocateSlice();
  if (space.ok()) return true;
  // Closing an endpoint removes the session's file, and ends the session soon after.
  if (!absl::IsNotFound(space) || !AwaitStop())
    End(kCudaErrorOutOfMemory, std::string(space.message()));
  return false;
}

void SessionWorker::Pause(SessionDriver& driver, const Done& done, Pauses& pauses) {
  Session& session = driver.session();
  const SteadyClock::time_point now = SteadyClock::now();
  const SteadyClock::duration idle = pauses.NoteIdle(now);
  const bool awaited = driver.awaited();
  if (awaited != pauses.awaited) {
    pauses.awaited = awaited;
    session.region().header()->awaited.store(awaited ? 1 : 0, std::memory_order_relaxed);
  }
  const bool full = CpuLoad::OfHost().Full(now.time_since_epoch() / nanoseconds(1));
  // A worker that polls takes a CPU from a program whose threads wait for each other.
  const bool prompt = full && awaited && pauses.wake_ups.soon(now);
  pauses.scheduling.SetPrompt(prompt);
  const microseconds spin = SpinTime(microseconds(options_->spin_us), awaited, full, prompt);
  const bool polls = !prompt && spin > kSubmissionPause;
  polls_ = polls;
  if (done.throttled) {
    if (polls && idle < kThrottledSpin) {
      CpuRelax();
    } else {
      std::this_thread::sleep_for(kThrottledSleep);
    }
    return;
  }
  if (done.full) {
    std::this_thread::sleep_for(kFullSleep);
    return;
  }
  const bool paused = idle >= kSubmissionPause;
  if (paused) driver.WatchWork(/*pause=*/true);
  if (done.collects) {
    CpuRelax();
    return;
  }
  if (idle < spin || (polls && driver.watching_work() && driver.others_throttled())) {
    CpuRelax();
    return;
  }
  // Beside its client, of which one always waits for the other.
  const bool beside_client = full && !awaited && pauses.alternation.alternates();
  if (!paused) {
    Sleep(session, kSubmissionPause - idle, beside_client, prompt, pauses);
    return;
  }
  driver.swap().SetIdle(
      std::chrono::duration_cast<std::chrono::nanoseconds>(pauses.idle_since.time_since_epoch())
          .count());
  // Skip this during a swap: graphs contain addresses, which must be backed by memory.
  if (!driver.swap().attention() && driver.MakeReady()) return;
  if (now >= pauses.active_until && !calm_ && !driver.watching_idle()) {
    if (!std::exchange(pauses.watched, true)) {
      driver.WatchIdle();
      return;
    }
    SetCalm(true);
    ReturnMemory(driver);
  }
  Sleep(session, LongestSleep(driver, now, pauses), beside_client, prompt, pauses);
}

nanoseconds SessionWorker::LongestSleep(SessionDriver& driver, SteadyClock::time_point now,
                                        Pauses& pauses) const {
  const Executor& executor = driver.session().executor();
  nanoseconds longest = calm_                       ? RingReader::kNoLimit
                        : now < pauses.active_until ? nanoseconds(kActiveSleep)
                                                    : kRestlessSleep;
  const bool looks = driver.announced() ? executor.waiting_for_others() != 0
                                        : executor.waiting() - executor.waiting_for_client() >
                                                  (driver.watching_idle() ? 1 : 0) ||
                                              driver.watching_work();
  if (looks) {
    longest = pauses.fence_sleep;
    pauses.fence_sleep = std::min(pauses.fence_sleep * 2, kLongestFenceSleep);
  } else if (executor.waiting_for_client() != 0) {
    longest = std::min<nanoseconds>(longest, kClientSleep);
  }
  if (call_waits_) longest = std::min<nanoseconds>(longest, kFullSleep);
  const SteadyClock::time_point end = executor.next_pause_end();
  if (end != SteadyClock::time_point::max())
    longest = std::clamp<nanoseconds>(end - now, nanoseconds(0), longest);
  return longest;
}

void SessionWorker::Sleep(Session& session, nanoseconds longest, bool beside_client, bool prompt,
                          Pauses& pauses) {
  if (beside_client) pauses.scheduling.KeepOn(ClientCpu(*session.region().header()));
  const SteadyClock::time_point begin = SteadyClock::now();
  // Looks at the ring once more, and may find that the memory behind it is gone.
  const bool alive = session.reader().Sleep(longest, [this, &session] {
    return session.executor().ClientHasWritten() || stop_.load(std::memory_order_acquire) ||
           new_calls_.load(std::memory_order_acquire) || session.region().damaged();
  });
  // A thread that the driver starts on this one may run on the same CPUs, for good.
  pauses.scheduling.RunAnywhere();
  if (!alive) session.Violate("the memory shared with the client is gone");
  if (session.reader().Ready()) {
    const uint64_t before = std::exchange(pauses.replies, session.region().replies_sent());
    pauses.alternation.NoteWake(pauses.replies != before);
  }
  if (!prompt || longest == RingReader::kNoLimit) return;
  const SteadyClock::time_point woke = SteadyClock::now();
  const nanoseconds late = woke - begin - longest;
  // Otherwise the client has woken the worker, and nobody knows when.
  if (late.count() >= 0) pauses.wake_ups.Note(late, woke);
}

bool SessionWorker::AwaitStop() const {
  const SteadyClock::time_point until = SteadyClock::now() + kStopTimeout;
  while (!stop_.load(std::memory_order_acquire)) {
    if (SteadyClock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void SessionWorker::SetCalm(bool calm) {
  if (calm == calm_) return;
  calm_ = calm;
  if (events_.calm) events_.calm(calm);
}

void SessionWorker::ReturnMemory(SessionDriver& driver) {
  if (driver.backlog().TakePeak() >= kMuchMemory) malloc_trim(0);
}

SessionWorker::Done SessionWorker::Round(SessionDriver& driver) {
  Session& session = driver.session();
  Done done;
  RingReader& reader = session.reader();
  RingRecord record;
  // Evicted memory comes back before any operation runs.
  const bool ready = !driver.swap().attention() || AttendToSwap(driver);
  // A worker that sleeps would submit what it has collected too late.
  if (ready && polls_) {
    done.collects = driver.CollectsRecords(has_calls_.load(std::memory_order_acquire));
  } else {
    driver.EndCollection();
  }
  const bool reads = ready && !done.collects;
  bool room = driver.HasRoom();
  done.full = reads && !room && reader.Ready();
  for (int i = 0; reads && room && i < kBatch && session.violation().empty(); ++i) {
    bool exempt = false;
    if (!driver.MayRun()) [[unlikely]] {
      if (!reader.Ready()) break;
      exempt = !GivesWork(reader.NextOp());
      done.throttled = !exempt && !driver.Throttle();
      if (done.throttled) break;
    }
    const RingReader::Result result = reader.Read(&record);
    if (result == RingReader::Result::kEmpty) break;
    if (result == RingReader::Result::kViolation) [[unlikely]] {
      session.Violate(absl::StrCat("malformed ring: ", reader.violation()));
      break;
    }
    if (exempt && GivesWork(record.op)) [[unlikely]] {
      session.Violate("the client changed a committed record");
      break;
    }
    driver.HandleRecord(record);
    done.client = true;
    // One record can launch a graph of a million nodes.
    if (record.op == static_cast<uint16_t>(Op::cuGraphLaunch)) room = driver.HasRoom();
    if (has_calls_.load(std::memory_order_acquire)) [[unlikely]]
      RunDueCalls(driver);
  }
  if (ready && has_calls_.load(std::memory_order_acquire)) [[unlikely]] {
    if (RunDueCalls(driver)) done.client = true;
  }
  if (session.executor().Poll() != 0) done.tasks = true;
  driver.WatchWork(/*pause=*/false);
  driver.CheckFault();
  if (session.sticky_error() != 0 && state() == State::kRunning) {
    sticky_error_.store(session.sticky_error(), std::memory_order_relaxed);
    faulted_.store(driver.faulted(), std::memory_order_release);
    state_.store(State::kFaulted, std::memory_order_release);
    if (events_.faulted) events_.faulted(session.sticky_error());
  }
  if (session.region().damaged() || session.memory().pinned().damaged()) [[unlikely]] {
    session.Violate("the client truncated a shared file");
  }
  return done;
}

bool SessionWorker::AttendToSwap(SessionDriver& driver) {
  const bool wanted =
      driver.session().reader().Ready() || has_calls_.load(std::memory_order_acquire);
  return driver.swap().Attend(wanted, stop_);
}

std::optional<CallRoom> SessionWorker::RoomFor(const ControlCall& call) {
  std::optional<QuotaCharge> session = Quota::TryTake(payloads_, call.rest_bytes);
  if (!session.has_value()) return std::nullopt;
  std::optional<QuotaCharge> tenant = Quota::TryTake(config_.waiting_quota, call.rest_bytes);
  if (!tenant.has_value()) return std::nullopt;
  return CallRoom{*std::move(session), *std::move(tenant)};
}

bool SessionWorker::RunDueCalls(SessionDriver& driver) {
  Session& session = driver.session();
  std::vector<ControlCall> due;
  {
    const bool replies_fit = session.long_replies().quota()->left() > 0;
    const MutexLock lock(&mutex_);
    new_calls_.store(false, std::memory_order_relaxed);
    const uint64_t position = session.reader().position();
    std::vector<ControlCall> later;
    call_waits_ = false;
    for (ControlCall& call : calls_) {
      // The client cannot have reserved more than the ring holds.
      if (call.after > position && call.after - position > session.reader().ring_bytes()) {
        session.Violate(
            absl::StrCat("a control call waits for ring position ", call.after, " at ", position));
      }
      bool waits = call.after > position;
      if (!waits) {
        std::optional<CallRoom> room = call.read_rest != nullptr ? RoomFor(call) : CallRoom();
        waits = !replies_fit || !room.has_value();
        call_waits_ |= waits;
        if (!waits && call.read_rest != nullptr) call.room = *std::move(room);
      }
      (waits ? later : due).push_back(std::move(call));
    }
    calls_ = std::move(later);
    has_calls_.store(!calls_.empty(), std::memory_order_release);
  }
  bool executed = false;
  for (ControlCall& call : due) {
    // Without the lock, because the rest may be here at once.
    if (call.read_rest != nullptr) {
      call.read_rest(std::move(call.room));
      continue;
    }
    executed = true;
    driver.HandleCall(call.op, call.device, call.context, call.args, std::move(call.payload),
                      std::move(call.done));
  }
  return executed;
}

void SessionWorker::RejectCalls(int result) {
  std::vector<ControlCall> rejected;
  {
    const MutexLock lock(&mutex_);
    rejecting_ = true;
    rejected.swap(calls_);
    has_calls_.store(false, std::memory_order_release);
  }
  for (ControlCall& call : rejected) call.done(result, "");
}

}  // namespace detshare
