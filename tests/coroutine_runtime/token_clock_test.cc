#include "coroutine_runtime/token_clock.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

namespace detshare {
namespace {

using policy::kMicrosecond;
using policy::kMillisecond;
using policy::Nanoseconds;

// A program whose operations take as much device time as they say, one after the other.
class Program {
 public:
  void Work(Nanoseconds time, int operations = 1) {
    for (int i = 0; i < operations; ++i) {
      if (clock.step_begins()) clock.Begin(now);
      clock.Work(time / operations);
    }
    now += time;
  }
  TokenClock::Token Read() { return clock.Read(now); }
  void Think(Nanoseconds time) { now += time; }
  policy::TokenView view() const { return clock.View(); }

  TokenClock clock;
  Nanoseconds now = 5 * kMillisecond;
};

TEST_CASE("An eager decode loop is a token a step, with its pace and its work") {
  Program program;
  for (int i = 0; i < 40; ++i) {
    program.Work(2 * kMillisecond, 250);
    program.Read();
    program.Think(kMillisecond);
  }
  const policy::TokenView view = program.view();
  CHECK(view.tokens == 40);
  CHECK(view.recent_tpot == 3 * kMillisecond);
  CHECK(view.decode_work == 2 * kMillisecond);
  CHECK(view.last_at == program.now - kMillisecond);
  CHECK_FALSE(view.prefill);
}

TEST_CASE("A step that is longer than usual is reported while it runs, and counts as one step") {
  Program program;
  for (int i = 0; i < 20; ++i) {
    if (i % 5 == 0) program.Work(3 * kMillisecond, 30);  // a part of a prompt, then a token
    program.Work(2 * kMillisecond, 20);
    program.Read();
  }
  CHECK(program.view().step_work == 2 * kMillisecond);
  int announced = 0;
  program.clock.Begin(program.now);
  for (int i = 0; i < 30; ++i) announced += program.clock.Work(kMillisecond / 10);
  CHECK(announced == 1);
  CHECK(program.view().step_work == 5 * kMillisecond);
  CHECK_FALSE(program.view().prefill);
  for (int i = 0; i < 50; ++i) announced += program.clock.Work(kMillisecond / 10);
  CHECK(announced >= 2);
  CHECK(announced <= 4);
  CHECK(program.view().prefill);
  CHECK(program.view().step_work >= 8 * kMillisecond);
  program.Read();
  CHECK(program.view().step_work == 2 * kMillisecond);
}

TEST_CASE("Small reads within a step do not count") {
  Program program;
  for (int i = 0; i < 40; ++i) {
    program.Work(2 * kMillisecond, 250);
    program.Read();
    program.Work(10 * kMicrosecond);  // the program reads whether the sequence has ended
    program.Read();
    program.Read();  // nothing new
  }
  const policy::TokenView view = program.view();
  CHECK(view.tokens == 40);
  CHECK(view.recent_tpot == 2 * kMillisecond + 10 * kMicrosecond);
}

TEST_CASE("A replayed graph is one operation a token, and a long step before it a prefill") {
  Program program;
  for (int reply = 0; reply < 5; ++reply) {
    program.Think(300 * kMillisecond);
    program.Work(40 * kMillisecond, 200);
    const bool known = reply > 0;
    CHECK(program.view().prefill == known);
    if (known) CHECK(program.view().prefill_since == program.now - 40 * kMillisecond);
    program.Read();
    CHECK_FALSE(program.view().prefill);
    for (int token = 1; token < 32; ++token) {
      program.Work(5 * kMillisecond);
      program.Read();
    }
  }
  const policy::TokenView view = program.view();
  // The very first prefill was not recognised as one.
  CHECK(view.tokens == 5 * 32 - 1);
  // Prefills and the time between replies are not part of the pace.
  CHECK(view.recent_tpot == 5 * kMillisecond);
  CHECK(view.decode_work == 5 * kMillisecond);
}

TEST_CASE("Each read gives the tokens that it ended, and how long they took") {
  Program program;
  uint64_t counted = 0;
  for (int reply = 0; reply < 3; ++reply) {
    program.Think(300 * kMillisecond);
    program.Work(40 * kMillisecond, 200);
    const TokenClock::Token first = program.Read();
    counted += first.counted;
    CHECK(first.prefill == (reply == 0 ? 0 : 40 * kMillisecond));
    CHECK(first.apart == 0);
    CHECK(program.Read().counted == 0);  // nothing new
    for (int i = 1; i < 32; ++i) {
      program.Work(5 * kMillisecond);
      const TokenClock::Token token = program.Read();
      counted += token.counted;
      CHECK(token.prefill == 0);
      CHECK((token.apart == 5 * kMillisecond || (reply == 0 && i <= 4 && token.apart == 0)));
    }
  }
  CHECK(counted == program.view().tokens);
}

TEST_CASE("Steps of continuous batching vary with the batch but are tokens") {
  Program program;
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    program.Work(std::uniform_int_distribution<int>(8, 14)(random) * kMillisecond, 400);
    if (i % 25 == 24) program.Work(60 * kMillisecond, 400);  // the prompt of a new request
    program.Read();
    program.Think(kMillisecond);
  }
  const policy::TokenView view = program.view();
  CHECK(view.tokens == 200);
  CHECK(view.recent_tpot > 9 * kMillisecond);
  CHECK(view.recent_tpot < 15 * kMillisecond);
  CHECK(view.decode_work > 8 * kMillisecond);
  CHECK(view.decode_work < 14 * kMillisecond);
}

TEST_CASE("Tokens that come late because of neighbours show in the pace") {
  Program program;
  for (int i = 0; i < 20; ++i) {
    program.Work(2 * kMillisecond);
    program.Read();
  }
  for (int i = 0; i < 20; ++i) {
    program.Work(2 * kMillisecond);
    program.Think(48 * kMillisecond);  // throttled
    program.Read();
  }
  CHECK(program.view().recent_tpot == 50 * kMillisecond);
  CHECK(program.view().decode_work == 2 * kMillisecond);
}

TEST_CASE("Training has no tokens, however often it reads its loss") {
  const int every = GENERATE(1, 10);
  Program program;
  for (int i = 0; i < 200; ++i) {
    program.Work(57 * kMillisecond, 2000);
    if (i % every == 0) program.Read();
  }
  CHECK(program.view().tokens == 0);
  CHECK_FALSE(program.view().prefill);
}

TEST_CASE("Bursts without reads are not tokens") {
  Program program;
  for (int i = 0; i < 200; ++i) {
    program.Work(3 * kMillisecond, 100);
    program.Think(2 * kMillisecond);
  }
  CHECK(program.view().tokens == 0);
}

TEST_CASE("Steps too short for a model are not tokens") {
  Program program;
  for (int i = 0; i < 200; ++i) {
    program.Work(10 * kMicrosecond);
    program.Read();
  }
  CHECK(program.view().tokens == 0);
}

TEST_CASE("Steps of ever different lengths are not tokens") {
  Program program;
  for (int i = 0; i < 200; ++i) {
    program.Work(static_cast<Nanoseconds>(kMicrosecond * std::pow(4.0, i % 7)));
    program.Read();
  }
  CHECK(program.view().tokens == 0);
}

TEST_CASE("A program that trains after it has generated soon stops counting as a prefill") {
  Program program;
  for (int i = 0; i < 20; ++i) {
    program.Work(2 * kMillisecond);
    program.Read();
  }
  program.Work(100 * kMillisecond);
  CHECK(program.view().prefill);
  for (int i = 0; i < 100; ++i) program.Work(57 * kMillisecond, 2000);
  CHECK_FALSE(program.view().prefill);
}

TEST_CASE("A program that changes to a smaller model gets that model's pattern") {
  Program program;
  for (int i = 0; i < 50; ++i) {
    program.Work(20 * kMillisecond);
    program.Read();
  }
  for (int i = 0; i < 500; ++i) {
    program.Work(500 * kMicrosecond);
    program.Read();
  }
  CHECK(program.view().decode_work == 500 * kMicrosecond);
  CHECK(program.view().recent_tpot == 500 * kMicrosecond);
  CHECK(program.view().tokens > 400);
}

TEST_CASE("A client may think for 20 ms, or for four tokens, before it begins another reply") {
  Program program;
  const auto token_after = [&](Nanoseconds thought) {
    program.Think(thought);
    program.Work(2 * kMillisecond);
    return program.Read().apart;
  };
  for (int i = 0; i < 20; ++i) token_after(0);
  CHECK(token_after(20 * kMillisecond) == 22 * kMillisecond);
  CHECK(token_after(88 * kMillisecond) == 90 * kMillisecond);
  CHECK(token_after(361 * kMillisecond) == 0);
  CHECK(token_after(360 * kMillisecond) == 362 * kMillisecond);
}

}  // namespace
}  // namespace detshare
