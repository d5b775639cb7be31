#include "coroutine_runtime/device_turn.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace detshare {
namespace {

using policy::Nanoseconds;

// A ticket so far ahead of time is nonsense.
constexpr Nanoseconds kAhead = policy::kSecond;
// A process that draws a ticket for so long is dead or hostile.
constexpr Nanoseconds kLongestDraw = 10 * policy::kMillisecond;
// Weights make a turn at most so many times as short, or as long, as one between equal weights.
constexpr Nanoseconds kParts = 8;
// While nobody waits, a turn that is over goes on. This is how often the line is looked at, then and
// during a turn.
constexpr Nanoseconds kLookAgain = 100 * policy::kMicrosecond;

}  // namespace

DeviceTurn::DeviceTurn(TurnWords& own, const EnginePeers& peers, size_t device, const Clock& clock,
                       std::function<void(bool keep)> keep)
    : own_(own), peers_(peers), device_(device), clock_(clock), keep_(std::move(keep)) {}

DeviceTurn::~DeviceTurn() {
  own_.overruns.store(0);
  own_.ticket.store(0);
}

bool DeviceTurn::shared() const { return peers_.AnyServes(); }

void DeviceTurn::SetWeight(double weight) {
  own_.weight.store(static_cast<uint32_t>(std::clamp(weight * 1000, 1.0, 1e9)),
                    std::memory_order_relaxed);
}

void DeviceTurn::SetLength(Nanoseconds length) {
  length_.store(length == 0 ? kLength : std::clamp(length, kMinLength, kMaxLength),
                std::memory_order_relaxed);
}

bool DeviceTurn::OthersBusy() const {
  return peers_.Any([this](uint64_t, const EnginePage& page) {
    const TurnWords& words = page.devices[device_].turn;
    return words.busy.load(std::memory_order_relaxed) != 0 ||
           words.urgent.load(std::memory_order_relaxed) != 0;
  });
}

bool DeviceTurn::OthersPreempt(uint64_t ranks) const {
  return peers_.Any([this, ranks](uint64_t, const EnginePage& page) {
    return (page.devices[device_].turn.preempting.load(std::memory_order_relaxed) & ranks) != 0;
  });
}

bool DeviceTurn::OthersUrgent() const {
  return peers_.Any([this](uint64_t, const EnginePage& page) {
    return page.devices[device_].turn.urgent.load(std::memory_order_relaxed) != 0;
  });
}

bool DeviceTurn::OthersInLine() const { return Look(clock_.NowNanoseconds()).waited; }

bool DeviceTurn::Quiet() const {
  const Nanoseconds now = clock_.NowNanoseconds();
  return now - worked_at_.load(std::memory_order_relaxed) >= kQuietAfter && !Look(now).works;
}

DeviceTurn::Line DeviceTurn::Look(Nanoseconds now) const {
  Line line;
  const uint64_t mine = own_.ticket.load();
  peers_.ForEach([&](uint64_t id, const EnginePage& page) {
    const TurnWords& words = page.devices[device_].turn;
    // In this order: a process stores its ticket before it stops drawing.
    line.draws |= words.draws.load() != 0;
    line.works |= words.busy.load(std::memory_order_relaxed) != 0;
    const uint64_t ticket = words.ticket.load();
    if (ticket == 0 || ticket > static_cast<uint64_t>(now + kAhead)) return;
    line.waited = true;
    // After the ticket, before which a process stores it.
    const uint32_t overruns = words.overruns.load();
    line.overruns |= overruns != 0;
    line.beyond |= overruns == kBeyond;
    line.weights +=
        std::clamp<uint32_t>(words.weight.load(std::memory_order_relaxed), 1, 1'000'000);
    ++line.count;
    const uint32_t early = words.early.load(std::memory_order_relaxed);
    line.longest =
        std::max(line.longest, early == 0 ? policy::kForever : early * policy::kMicrosecond);
    if (mine != 0 && (ticket > mine || (ticket == mine && id > peers_.own_id))) return;
    if (line.ahead == 0 || ticket < line.first) line.first = ticket;
    ++line.ahead;
  });
  line.works |= line.waited;
  if (line.works) worked_at_.store(now, std::memory_order_relaxed);
  return line;
}

void DeviceTurn::Draw(Nanoseconds now) {
  ahead_ = 0;
  own_.draws.store(1);
  uint64_t ticket = static_cast<uint64_t>(std::max<Nanoseconds>(now, 1));
  peers_.ForEach([&](uint64_t, const EnginePage& page) {
    const uint64_t other = page.devices[device_].turn.ticket.load();
    if (other <= static_cast<uint64_t>(now + kAhead)) ticket = std::max(ticket, other + 1);
  });
  own_.ticket.store(ticket);
  own_.draws.store(0);
}

bool DeviceTurn::Join() {
  uint64_t state = state_.load(std::memory_order_relaxed);
  while ((state & kHas) != 0 && (state & kOver) == 0) {
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed))
      return true;
  }
  return false;
}

bool DeviceTurn::Take(bool inside) {
  // Another member of this process looks at the line.
  if (deciding_.exchange(true, std::memory_order_acquire)) return false;
  const uint64_t state = state_.load(std::memory_order_relaxed);
  bool taken = inside ? (state & kHas) != 0 && (state & kOver) == 0 : Join();
  if (!taken && (state_.load(std::memory_order_relaxed) & kHas) == 0) {
    const Nanoseconds now = clock_.NowNanoseconds();
    if (own_.ticket.load(std::memory_order_relaxed) == 0) Draw(now);
    const Line line = Look(now);
    taken = MayTake(now, line);
    if (taken) Begin(now, line, inside);
  } else if (!taken) {
    // The members that are inside may wait for this one: for memory that moves in this member's turn.
    const Nanoseconds now = clock_.NowNanoseconds();
    if ((state_.load(std::memory_order_relaxed) & kOver) != 0 && Overdue(now)) GiveUpWithWork(now);
  }
  deciding_.store(false, std::memory_order_release);
  return taken;
}

bool DeviceTurn::MayTake(Nanoseconds now, const Line& line) {
  if (!line.draws) {
    draws_since_ = 0;
  } else if (draws_since_ == 0) {
    draws_since_ = now;
  }
  if (line.draws && now - draws_since_ < kLongestDraw) return false;
  if (line.ahead == 0) return true;
  // Nobody comes into the line in front of this process, except by nonsense.
  if (ahead_ == 0 || line.ahead < ahead_) {
    ahead_ = line.ahead;
    ahead_since_ = now;
    return false;
  }
  const Nanoseconds timeout =
      line.first == overtaken_ && line.ahead == 1 ? length() : kOvertakeTimeout * line.ahead;
  if (now - ahead_since_ < timeout) return false;
  overtaking_ = true;
  overtaken_ = line.first;
  return true;
}

Nanoseconds DeviceTurn::Length(const Line& line) const {
  const double own = own_.weight.load(std::memory_order_relaxed);
  const double part = own * (line.count + 1) / (line.weights + own);
  const Nanoseconds usual = Early(line) ? kOfEarly * line.longest : length();
  return std::clamp(static_cast<Nanoseconds>(static_cast<double>(usual) * part), Shortest(),
                    std::min(kParts * length(), kLongest));
}

Nanoseconds DeviceTurn::Shortest() const { return std::max(length() / kParts, kWindow); }

void DeviceTurn::Begin(Nanoseconds now, const Line& line, bool inside) {
  long_.store(own_.overruns.exchange(0) == kBeyond, std::memory_order_relaxed);
  KeepBeside(line, std::exchange(overtaking_, false), now);
  const Nanoseconds length = Length(line);
  const Nanoseconds paid = std::clamp<Nanoseconds>(length - Shortest(), 0, debt_);
  began_ = now;
  debt_ -= paid;
  until_.store(now + length - paid, std::memory_order_relaxed);
  over_at_.store(0, std::memory_order_relaxed);
  // Members whose work overran are still counted.
  state_.fetch_add(kHas | (inside ? 0 : 1), std::memory_order_acq_rel);
}

bool DeviceTurn::Goes() {
  uint64_t state = state_.load(std::memory_order_relaxed);
  if ((state & kHas) == 0) return Take(/*inside=*/true);
  const Nanoseconds now = clock_.NowNanoseconds();
  LookAround(now);
  if ((state & kOver) != 0) {
    if (Overdue(now)) Overrun(now);
    return false;
  }
  if (now < until_.load(std::memory_order_relaxed)) return true;
  if (!Look(now).waited) {
    until_.store(now + kLookAgain, std::memory_order_relaxed);
    return true;
  }
  over_at_.store(now, std::memory_order_relaxed);
  while ((state & kHas) != 0 &&
         !state_.compare_exchange_weak(state, state | kOver, std::memory_order_relaxed)) {
  }
  return false;
}

void DeviceTurn::LookAround(Nanoseconds now) {
  if (now < look_at_.load(std::memory_order_relaxed)) return;
  look_at_.store(now + kLookAgain, std::memory_order_relaxed);
  if (deciding_.exchange(true, std::memory_order_acquire)) return;
  const Line line = Look(now);
  // One that is in front of this process was overtaken.
  if ((state_.load(std::memory_order_relaxed) & kHas) != 0) KeepBeside(line, line.ahead != 0, now);
  if (Early(line)) {
    const Nanoseconds until = began_ + Length(line);
    if (until < until_.load(std::memory_order_relaxed))
      until_.store(until, std::memory_order_relaxed);
  }
  deciding_.store(false, std::memory_order_release);
}

bool DeviceTurn::Overdue(Nanoseconds now) {
  const Nanoseconds over_at = over_at_.load(std::memory_order_relaxed);
  if (over_at != 0) return now - over_at >= (long_.load(std::memory_order_relaxed) ? 0 : kGrace);
  over_at_.store(now, std::memory_order_relaxed);  // the turn began while another thread ended it
  return false;
}

void DeviceTurn::Overrun(Nanoseconds now) {
  if (deciding_.exchange(true, std::memory_order_acquire)) return;  // it is looked at again
  GiveUpWithWork(now);
  deciding_.store(false, std::memory_order_release);
}

void DeviceTurn::GiveUpWithWork(Nanoseconds now) {
  const uint64_t state = state_.load(std::memory_order_relaxed);
  if ((state & kHas) == 0 || (state & kOver) == 0 || (state & kCount) == 0) return;
  AddDebt(now - over_at_.load(std::memory_order_relaxed));
  own_.early.store(0, std::memory_order_relaxed);
  own_.overruns.store(kBeyond);
  state_.fetch_and(kCount, std::memory_order_acq_rel);
  Draw(now);
  keep_until_ = 0;
  StopKeeping(now);
}

void DeviceTurn::AddDebt(Nanoseconds time) {
  debt_ = std::clamp<Nanoseconds>(debt_ + time, 0, kLongest);
}

void DeviceTurn::KeepBeside(const Line& line, bool overtaken, Nanoseconds now) {
  if (line.beyond || overtaken) keep_until_ = now + kKeepAfter;
  const bool keep = line.overruns || now < keep_until_;
  if (std::exchange(keeping_, keep) != keep) keep_(keep);
}

void DeviceTurn::StopKeeping(Nanoseconds now) {
  if (now >= keep_until_ && std::exchange(keeping_, false)) keep_(false);
}

void DeviceTurn::Part() {
  const uint64_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kCount) == 1) Release();
}

void DeviceTurn::Release() {
  // The other thread may have lost its CPU.
  while (deciding_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  uint64_t state = state_.load(std::memory_order_acquire);
  const bool unused = (state & kCount) == 0;
  if ((state & kHas) != 0 && unused &&
      state_.compare_exchange_strong(state, 0, std::memory_order_acq_rel)) {
    const Nanoseconds over_at = over_at_.load(std::memory_order_relaxed);
    const Nanoseconds now = clock_.NowNanoseconds();
    if (over_at != 0) AddDebt(now - over_at);
    const Nanoseconds took = std::clamp<Nanoseconds>(now - began_, policy::kMicrosecond, length());
    own_.early.store(over_at != 0 ? 0 : static_cast<uint32_t>(took / policy::kMicrosecond),
                     std::memory_order_relaxed);
    own_.ticket.store(0);
    StopKeeping(now);
  } else if ((state & kHas) == 0 && unused) {
    own_.overruns.store(0);
    if (waiting_.load(std::memory_order_relaxed) == 0) own_.ticket.store(0);
  }
  deciding_.store(false, std::memory_order_release);
}

bool DeviceTurn::Member::Enter() {
  if (inside_) return turn_->Goes();
  if (turn_->Join() || turn_->Take(/*inside=*/false)) {
    inside_ = true;
    if (std::exchange(waits_, false)) turn_->waiting_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  if (!std::exchange(waits_, true)) turn_->waiting_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void DeviceTurn::Member::Leave() {
  if (std::exchange(inside_, false)) turn_->Part();
}

void DeviceTurn::Member::GiveUp() {
  if (std::exchange(waits_, false) &&
      turn_->waiting_.fetch_sub(1, std::memory_order_relaxed) == 1) {
    turn_->Release();
  }
}

}  // namespace detshare
