// Recognises programs that produce tokens by the pattern of their calls.
//
// A program that generates text repeats two actions: it submits a step of work, and it reads the
// result. Eager loops, replayed graphs and servers with continuous batching all do this. A step is
// the work between two reads. Several recent steps of about the same device time form a pattern.
// Once there is a pattern, a step is classified by its device time:
//
//     step < 1/4 of the usual       part of the next step: a small result was read in between
//     up to 3 times the usual       a token
//     more                          a prefill, whose end is the first token of a reply
//
// Other programs look similar. Steps shorter than `shortest_step` are too short for a model. Steps
// longer than `longest_step` belong to training that reads its loss every time. Calls alone do not
// distinguish training of a small model that does this from generation; the operator gives such a
// tenant the class batch. Requests that are each answered by one step also count as tokens.
//
// The code is pure: time is an argument. Threading: one thread.
#pragma once

#include <array>
#include <cstdint>

#include "policy/policy.h"

namespace detshare {

class TokenClock {
 public:
  struct Options {
    policy::Nanoseconds shortest_step = 100 * policy::kMicrosecond;
    policy::Nanoseconds longest_step = 50 * policy::kMillisecond;
    // A step that lasts longer is a new phase of the program.
    policy::Nanoseconds longest_prefill = 5 * policy::kSecond;
  };
  TokenClock() : TokenClock(Options{}) {}
  explicit TokenClock(const Options& options) : options_(options) {}

  // Whether the next Work() is the first of a step. If so, the caller calls Begin() before it. A
  // step thus costs its caller one look at a clock.
  bool step_begins() const { return work_ == 0; }
  void Begin(policy::Nanoseconds now) { step_since_ = now; }
  // An operation with this device time was submitted. Returns whether View() changed for the
  // running step, which happens a few times per step.
  bool Work(policy::Nanoseconds device_time) {
    work_ += device_time;
    if (work_ < next_change_) return false;
    next_change_ = NextChange();
    return true;
  }
  // The classification of a read.
  struct Token {
    uint64_t counted = 0;             // tokens recognised since the previous read
    policy::Nanoseconds apart = 0;    // since the previous token of the same reply; 0: none
    policy::Nanoseconds prefill = 0;  // for a first token: since the prefill began; 0: not a first
  };
  // The client has the result for which it waited: the bytes of a copy to the host.
  Token Read(policy::Nanoseconds now);

  // The present state, including the running step.
  policy::TokenView View() const;

 private:
  static constexpr int kRemembered = 16;
  static constexpr int kPattern = 4;  // similar steps among the remembered ones

  // The usual step among the remembered ones, and the number of steps like it.
  struct Usual {
    policy::Nanoseconds work = 0;
    int count = 0;
  };
  Usual FindUsual() const;
  // The expected length of the running step: the usual step or, if the step is longer already, the
  // next longer one of the remembered steps.
  policy::Nanoseconds StepWork() const;
  // The amount of work at which the view of the running step changes.
  policy::Nanoseconds NextChange() const;
  void CountToken(policy::Nanoseconds now, bool paced);

  const Options options_;
  policy::Nanoseconds work_ = 0;        // of the running step
  policy::Nanoseconds step_since_ = 0;  // when its first operation was submitted

  std::array<policy::Nanoseconds, kRemembered> steps_{};  // the latest steps, of all reads
  uint64_t reads_ = 0;
  int partial_ = 0;  // reads since then that ended no step

  policy::Nanoseconds usual_ = 0;  // 0: no pattern
  policy::Nanoseconds next_change_ = policy::kForever;
  uint64_t tokens_ = 0;
  policy::Nanoseconds last_at_ = 0;
  std::array<policy::Nanoseconds, kRemembered> paces_{};  // the latest times between tokens
  uint64_t pace_count_ = 0;
};

}  // namespace detshare
