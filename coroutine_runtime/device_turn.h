// The turn of this process's ordinary work on a device that several processes share.
//
// The hardware makes no progress while the ordinary time-slice groups of two processes have work
// (docs/preemption.md). So the processes take turns: only the one whose turn it is submits ordinary
// work. Urgent work takes no turns, because it preempts.
//
//     a process wants the device --draws a ticket--> waits --is first in line--> has the turn
//                                                                                    |
//            no work is left, or the turn is over and others wait: work completes <--+
//
// The processes agree without messages and locks, by Lamport's bakery algorithm. Each one stores its
// own TurnWords, in memory that the others can only read. A ticket is the time when it was drawn, so
// those who wait get their turns in the order in which they came.
//
// A turn's length follows the weights of those who want the device. The time that the work in flight
// takes beyond the end of a turn shortens the later turns of that process. Beside a process that gives
// its turns up early, since its client pauses between short pieces of work, turns are shorter, too: it
// would wait for a whole turn at each pause.
//
// Work that does not complete within kGrace after its turn *overruns*. Its process then gives up the
// turn with the work still in the hardware, and goes to the end of the line. While anything overruns,
// the process whose turn it is lets its own group keep the device for longer than usual
// (Device::KeepOrdinary), which stops the other work as urgent work would. So work that overruns
// proceeds in the turns of its own process, however long it is, and so does all other work. The same
// holds for work that begins without a turn, because its client or an event lets it go on. Beside work
// that overruns, a process whose own work does not stops keeping the device only kKeepAfter later: the
// driver may take longer than a turn to change a slice.
//
// Nobody can keep the device. If the line in front of a process does not get shorter for
// kOvertakeTimeout for each process there, because they are dead or hostile, it takes a turn as if
// they overran. Nonsense in the words of others is a ticket that does not count, or one that is
// overtaken.
//
// Threading: any thread. No call waits for the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/engine_page.h"
#include "policy/policy.h"

namespace detshare {

class DeviceTurn {
 public:
  // A turn between processes of equal weight, unless SetLength() gives another one.
  static constexpr policy::Nanoseconds kLength = 20 * policy::kMillisecond;
  // Bounds of what SetLength() can give. A turn is longer than the work in flight, and so short that
  // weights have their effect below kLongest.
  static constexpr policy::Nanoseconds kMinLength = 5 * policy::kMillisecond,
                                       kMaxLength = 80 * policy::kMillisecond;
  // No turn is longer, whatever the weights.
  static constexpr policy::Nanoseconds kLongest = 160 * policy::kMillisecond;
  // The work in flight of one session, unless no other process uses the device (Quiet). So a turn ends soon
  // after it is over.
  static constexpr policy::Nanoseconds kWindow = 2 * policy::kMillisecond;
  // How long a process that had work is expected to have work again.
  static constexpr policy::Nanoseconds kQuietAfter = policy::kSecond;
  // How long work may take beyond the end of its turn before it overruns. Work that overran before
  // overruns at once.
  static constexpr policy::Nanoseconds kGrace = 20 * policy::kMillisecond;
  // Longer than any turn with its grace. A process overtakes the same one again after a turn's length, so
  // both get half of the device.
  static constexpr policy::Nanoseconds kOvertakeTimeout = 250 * policy::kMillisecond;
  // How long a process keeps the device after the work of others overran. Kept, it makes urgent work wait
  // for a part of a millisecond.
  static constexpr policy::Nanoseconds kKeepAfter = 500 * policy::kMillisecond;
  // A turn takes this many times as long as those of processes that give theirs up early.
  static constexpr policy::Nanoseconds kOfEarly = 2;

  // `own` are this process's words for the device, which is `device` in the pages. `keep` is
  // Device::KeepOrdinary of the device. All arguments outlive the object.
  DeviceTurn(TurnWords& own, const EnginePeers& peers, size_t device, const Clock& clock,
             std::function<void(bool keep)> keep);
  ~DeviceTurn();
  DeviceTurn(const DeviceTurn&) = delete;
  DeviceTurn& operator=(const DeviceTurn&) = delete;

  // Whether other processes serve programs.
  bool shared() const;
  // Of the tenants that want the device. Above 0.
  void SetWeight(double weight);
  // The length of this process's turns beside processes of equal weight; 0: kLength. Holds from the next
  // turn on.
  void SetLength(policy::Nanoseconds length);
  policy::Nanoseconds length() const { return length_.load(std::memory_order_relaxed); }
  // Ranks with work are added or removed, as in SchedBoard::busy.
  void AddBusy(uint64_t change) { own_.busy.fetch_add(change, std::memory_order_relaxed); }
  // The same for ranks with work that preempts.
  void AddPreempting(uint64_t change) {
    own_.preempting.fetch_add(change, std::memory_order_relaxed);
  }
  // Coroutines with work in the urgent group are added or removed, as in SchedBoard::urgent.
  void AddUrgent(int change) { own_.urgent.fetch_add(change, std::memory_order_relaxed); }
  // Whether other processes have work of any kind.
  bool OthersBusy() const;
  // Whether other processes have preempting work of one of these ranks, a mask for SchedBoard::busy.
  bool OthersPreempt(uint64_t ranks) const;
  // Whether other processes have work in their urgent groups.
  bool OthersUrgent() const;
  // Whether other processes want the device for ordinary work.
  bool OthersInLine() const;
  // Whether no other process has work of any kind now, and this process has seen none that had for
  // kQuietAfter. Then any work may be in flight, as if no other process were there. A process that comes
  // next waits for the device for kGrace at most.
  bool Quiet() const;

  // One session of this process, on one device. Its worker is the only user.
  class Member {
   public:
    explicit Member(DeviceTurn* turn) : turn_(turn) {}
    ~Member() {
      GiveUp();
      Leave();
    }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // Whether the session may submit ordinary work now. Once true, it counts as having work there
    // until Leave(). False: it waits in line, and calls again, or gives up.
    bool Enter();
    // Must be called every few milliseconds while the session is inside and does not call Enter(). If it
    // is not, because a call of the session waits, others end the turn: members of the process that wait,
    // or processes that overtake it.
    // Gives up turns that are over, and takes further ones for work that overruns.
    void Proceed() {
      if (inside_) turn_->Goes();
    }
    // The session waits in line with work in the hardware. Others keep the device in their turns.
    void Outside() {
      uint32_t none = 0;
      if (waits_) turn_->own_.overruns.compare_exchange_strong(none, kOutside);
    }
    // The session has no ordinary work in the hardware.
    void Leave();
    // It does not wait any more.
    void GiveUp();
    // Whether it counts as having work there.
    bool inside() const { return inside_; }

   private:
    DeviceTurn* const turn_;
    bool inside_ = false, waits_ = false;
  };

 private:
  // The state: whether the process has the turn, whether the turn is over, and the number of members
  // inside.
  static constexpr uint64_t kHas = uint64_t{1} << 63, kOver = uint64_t{1} << 62;
  static constexpr uint64_t kCount = kOver - 1;
  // TurnWords::overruns: work of this process is in the hardware beyond its turn, or without one.
  static constexpr uint32_t kBeyond = 1, kOutside = 2;

  // The line as one look sees it.
  struct Line {
    int ahead = 0;          // processes in front of this one
    uint64_t first = 0;     // the ticket of the first of them
    bool draws = false;     // a process draws a ticket, which may be in front
    bool overruns = false;  // work of another process does, or began without a turn
    bool beyond = false;    // it does
    bool waited = false;    // others want the device
    bool works = false;     // others have work of any kind
    double weights = 0;     // of them
    int count = 0;
    policy::Nanoseconds longest = 0;  // of their latest turns; kForever: one was not given up early
  };
  Line Look(policy::Nanoseconds now) const;
  // Counts a member, if the process has the turn.
  bool Join();
  // Returns whether the process has the turn, or can have it now. `inside`: for a member whose work
  // overruns. Otherwise it lets a waiting member in.
  bool Take(bool inside);
  bool MayTake(policy::Nanoseconds now, const Line& line);
  // Whether a turn beside the others in line is shorter than usual.
  bool Early(const Line& line) const {
    return line.count != 0 && line.longest < length() / kOfEarly;
  }
  // How long a turn of this process may take beside the others in line.
  policy::Nanoseconds Length(const Line& line) const;
  policy::Nanoseconds Shortest() const;
  void Begin(policy::Nanoseconds now, const Line& line, bool inside);
  // Whether members that are inside may submit more.
  bool Goes();
  // Looks at the line during a turn. Keeps the device while work of another process is in the hardware.
  // Shortens the turn if those who wait now use little.
  void LookAround(policy::Nanoseconds now);
  // Whether the turn has been over for so long that its work overruns. Requires that it is over.
  bool Overdue(policy::Nanoseconds now);
  // Gives up the turn with work in the hardware.
  void Overrun(policy::Nanoseconds now);
  // The same for the thread that has `deciding_`.
  void GiveUpWithWork(policy::Nanoseconds now);
  // The turn took so much longer than it should.
  void AddDebt(policy::Nanoseconds time);
  // Keeps the device in the turn beside these others, or no longer. `overtaken`: one that is in front of
  // this process.
  void KeepBeside(const Line& line, bool overtaken, policy::Nanoseconds now);
  // Work of this process is complete, or goes on in the turns of others. In the first case it keeps the
  // device as long as others may overrun again.
  void StopKeeping(policy::Nanoseconds now);
  void Part();
  // Gives up the turn if nobody is inside, and the place in line if nobody waits.
  void Release();
  void Draw(policy::Nanoseconds now);

  TurnWords& own_;
  const EnginePeers& peers_;
  const size_t device_;
  const Clock& clock_;
  const std::function<void(bool)> keep_;

  // Acquire and release: the work of a turn begins after that of others, and is complete before.
  std::atomic<uint64_t> state_{0};
  // Members. Relaxed: checked again by the one who has `deciding_`.
  std::atomic<uint32_t> waiting_{0};
  // Relaxed: read late, a turn has the length before.
  std::atomic<policy::Nanoseconds> length_{kLength};
  // When the turn is over; relaxed: read late, the turn is a little longer.
  std::atomic<policy::Nanoseconds> until_{0};
  // Held for a moment by the thread that takes or gives up the turn. Acquire and release: publishes
  // what follows.
  std::atomic<bool> deciding_{false};
  policy::Nanoseconds began_ = 0;  // the turn, or the latest one
  bool keeping_ = false;           // keep_(true) was called last
  policy::Nanoseconds keep_until_ = 0;
  bool overtaking_ = false;
  uint64_t overtaken_ = 0;  // the first ticket in line when this process overtook last
  int ahead_ = 0;  // the shortest line in front of this process, and since when; 0: none seen
  policy::Nanoseconds ahead_since_ = 0, draws_since_ = 0;
  policy::Nanoseconds debt_ = 0;
  // The turn's work overran in an earlier turn. Relaxed: see over_at_.
  std::atomic<bool> long_{false};
  // When another process was last seen to have work. Relaxed: read late, one more operation begins.
  mutable std::atomic<policy::Nanoseconds> worked_at_{0};
  // When to look for work of others in the hardware. Relaxed: read late, it looks a little later.
  std::atomic<policy::Nanoseconds> look_at_{0};
  // When the turn was over; 0: it is not. Relaxed: read late, work overruns a little later.
  std::atomic<policy::Nanoseconds> over_at_{0};
};

}  // namespace detshare
