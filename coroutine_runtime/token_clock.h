// Recognises programs that produce tokens by the pattern of their calls.
//
// A program that generates text gives the device a step of work, reads back what came out, and
// gives it the next step: eager loops, replayed graphs and servers with continuous batching all do.
// The work between two such reads is a step. Steps of about the same device time, several of the
// latest ones, make a pattern; from then on
//
//     step < 1/4 of the usual       part of the next step: a small result was read on the way
//     up to 3 times the usual       a token
//     more                          a prefill, whose end is the first token of a reply
//
// Programs look alike that are not: steps shorter than `shortest_step` are not those of a model,
// longer ones than `longest_step` are those of training that reads its loss every time. Training of
// a small model that does this cannot be told from generation by its calls: the operator says that
// the tenant is of class batch. A request that is answered by one step, again and again, counts as
// tokens, too.
//
// Pure: time is an argument. Threading: one thread.
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
    // What goes on for longer is another phase of the program.
    policy::Nanoseconds longest_prefill = 5 * policy::kSecond;
  };
  TokenClock() : TokenClock(Options{}) {}
  explicit TokenClock(const Options& options) : options_(options) {}

  // Whether the next Work() is the first of a step: then Begin() comes before it. So a step costs
  // its caller one look at a clock.
  bool step_begins() const { return work_ == 0; }
  void Begin(policy::Nanoseconds now) { step_since_ = now; }
  // An operation was submitted that takes the device that long. Whether View() says something else
  // about the running step now: a few times a step.
  bool Work(policy::Nanoseconds device_time) {
    work_ += device_time;
    if (work_ < next_change_) return false;
    next_change_ = NextChange();
    return true;
  }
  // What a read was.
  struct Token {
    uint64_t counted = 0;             // tokens that are known of since the read before
    policy::Nanoseconds apart = 0;    // since the token before it of the same answer; 0: none
    policy::Nanoseconds prefill = 0;  // of the first one: since the prefill began; 0: it was none
  };
  // The client has what it waited for: the bytes of a copy to the host.
  Token Read(policy::Nanoseconds now);

  // Now, with the step that is running.
  policy::TokenView View() const;

 private:
  static constexpr int kRemembered = 16;
  static constexpr int kPattern = 4;  // similar steps among the remembered ones

  // The usual step among the remembered ones, and how many there are of it.
  struct Usual {
    policy::Nanoseconds work = 0;
    int count = 0;
  };
  Usual FindUsual() const;
  // What the running step is likely to take: as much as usual, or when it is longer already, as
  // much as the next longer one of the remembered ones.
  policy::Nanoseconds StepWork() const;
  // The work from which on the view of the running step is another one.
  policy::Nanoseconds NextChange() const;
  void CountToken(policy::Nanoseconds now, bool paced);

  const Options options_;
  policy::Nanoseconds work_ = 0;        // of the running step
  policy::Nanoseconds step_since_ = 0;  // its first operation

  std::array<policy::Nanoseconds, kRemembered> steps_{};  // of all reads, the latest ones
  uint64_t reads_ = 0;
  int partial_ = 0;  // reads since then that ended no step

  policy::Nanoseconds usual_ = 0;  // 0: no pattern
  policy::Nanoseconds next_change_ = policy::kForever;
  uint64_t tokens_ = 0;
  policy::Nanoseconds last_at_ = 0;
  std::array<policy::Nanoseconds, kRemembered> paces_{};  // between tokens, the latest ones
  uint64_t pace_count_ = 0;
};

}  // namespace detshare
