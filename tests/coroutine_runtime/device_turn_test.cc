// The turns of several processes on one device. Here the processes are objects of one process.
#include "coroutine_runtime/device_turn.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "tests/coroutine_runtime/engine_peers.h"
#include "tests/coroutine_runtime/scripted_policy.h"

namespace detshare {
namespace {

using policy::kMicrosecond;
using policy::kMillisecond;
using policy::kSecond;

// Processes that know each other. Each has words for device 1.
struct Processes {
  struct Process {
    EnginePage page;
    EnginePeers peers;
    std::vector<bool> kept;
    std::unique_ptr<DeviceTurn> turn;
  };
  std::deque<Process> all;

  Processes(int count, const Clock& clock) {
    for (int i = 0; i < count; ++i) {
      Process& process = all.emplace_back();
      process.peers.own_id = static_cast<uint64_t>(i) + 1;
    }
    for (Process& process : all) {
      for (Process& other : all) {
        if (&other != &process) AddPeer(process.peers, other.peers.own_id, other.page);
      }
      process.turn =
          std::make_unique<DeviceTurn>(process.page.devices[1].turn, process.peers, 1, clock,
                                       [&process](bool keep) { process.kept.push_back(keep); });
    }
  }
  TurnWords& WordsOf(int process) { return all[process].page.devices[1].turn; }
};

struct TurnFixture {
  ManualClock clock;
  Processes processes{3, clock};
  DeviceTurn::Member a{processes.all[0].turn.get()}, a2{processes.all[0].turn.get()},
      b{processes.all[1].turn.get()}, c{processes.all[2].turn.get()};

  TurnFixture() { clock.Advance(kSecond); }

  // The member has a whole turn while the other one waits.
  void HaveWholeTurn(DeviceTurn::Member& member, DeviceTurn::Member& other) {
    REQUIRE(member.Enter());
    CHECK_FALSE(other.Enter());
    clock.Advance(DeviceTurn::kLength);
    CHECK_FALSE(member.Enter());
    member.Leave();
  }
};

TEST_CASE_METHOD(TurnFixture,
                 "One process has the turn, and the others get it in the order they came") {
  REQUIRE(a.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(c.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(b.Enter());
  a.Leave();
  CHECK_FALSE(b.Enter());
  REQUIRE(c.Enter());
  c.Leave();
  CHECK(b.Enter());
}

TEST_CASE_METHOD(TurnFixture, "A turn lasts as long as the policy says, within bounds") {
  DeviceTurn& turn = *processes.all[0].turn;
  for (const policy::Nanoseconds length : {10 * kMillisecond, 70 * kMillisecond}) {
    turn.SetLength(length);
    REQUIRE(a.Enter());
    CHECK_FALSE(b.Enter());
    clock.Advance(length - kMicrosecond);
    CHECK(a.Enter());
    clock.Advance(kMicrosecond);
    CHECK_FALSE(a.Enter());
    a.Leave();
    REQUIRE(b.Enter());
    b.Leave();
    processes.WordsOf(1).early = 0;  // as if it had a whole turn
  }
  turn.SetLength(1);
  CHECK(turn.length() == DeviceTurn::kMinLength);
  turn.SetLength(policy::kForever);
  CHECK(turn.length() == DeviceTurn::kMaxLength);
  turn.SetLength(0);
  CHECK(turn.length() == DeviceTurn::kLength);
  // A process whose words nobody sees for this time counts as dead.
  CHECK(DeviceTurn::kLongest + DeviceTurn::kGrace < DeviceTurn::kOvertakeTimeout);
}

TEST_CASE_METHOD(TurnFixture, "Tickets of the same time are in one order for all") {
  REQUIRE(c.Enter());
  CHECK_FALSE(b.Enter());
  CHECK_FALSE(a.Enter());
  c.Leave();
  const bool first = a.Enter();
  CHECK(b.Enter() != first);
}

TEST_CASE_METHOD(TurnFixture, "Sessions of one process have the turn together") {
  REQUIRE(a.Enter());
  REQUIRE(a2.Enter());
  CHECK_FALSE(b.Enter());
  a.Leave();
  CHECK_FALSE(b.Enter());
  a2.Leave();
  CHECK(b.Enter());
}

TEST_CASE_METHOD(TurnFixture, "A turn is over after its length if others wait") {
  REQUIRE(a.Enter());
  clock.Advance(10 * DeviceTurn::kLength);
  CHECK(a.Enter());
  CHECK_FALSE(b.Enter());
  clock.Advance(kMillisecond);
  CHECK_FALSE(a.Enter());   // it may submit no more
  CHECK_FALSE(a2.Enter());  // and nobody else of the process
  CHECK_FALSE(b.Enter());   // work is in the hardware
  a.Leave();
  CHECK_FALSE(a2.Enter());  // at the end of the line
  REQUIRE(b.Enter());
  clock.Advance(DeviceTurn::kLength - kMicrosecond);
  CHECK(b.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(b.Enter());
  b.Leave();
  CHECK(a2.Enter());
}

TEST_CASE_METHOD(TurnFixture, "A session that gives up does not hold up those behind it") {
  REQUIRE(a.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(b.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(c.Enter());
  b.GiveUp();
  a.Leave();
  CHECK(c.Enter());
}

TEST_CASE_METHOD(TurnFixture, "Lengths follow the weights, and work beyond the end is paid back") {
  processes.all[0].turn->SetWeight(3);
  CHECK_FALSE((a.Enter() && b.Enter()));
  a.Leave();
  REQUIRE(b.Enter());
  CHECK_FALSE(a.Enter());
  b.Leave();
  REQUIRE(a.Enter());  // no other wants the device, so the weights of others do not count
  CHECK_FALSE(b.Enter());
  clock.Advance(DeviceTurn::kLength);
  CHECK_FALSE(a.Enter());
  clock.Advance(5 * kMillisecond);  // a kernel takes longer
  a.Leave();
  HaveWholeTurn(b, a);
  CHECK_FALSE(b.Enter());
  // Three halves of the usual length, less the debt.
  REQUIRE(a.Enter());
  const policy::Nanoseconds length = DeviceTurn::kLength * 3 / 2 - 5 * kMillisecond;
  clock.Advance(length - kMicrosecond);
  CHECK(a.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(a.Enter());
}

TEST_CASE_METHOD(TurnFixture, "Turns are shorter beside a process that gives its turns up early") {
  const policy::Nanoseconds used = GENERATE(1, 4, 15) * kMillisecond;
  // Twice as long, at least an eighth of the usual length and at most all of it.
  const policy::Nanoseconds length =
      std::clamp(2 * used, DeviceTurn::kLength / 8, DeviceTurn::kLength);
  REQUIRE(b.Enter());
  clock.Advance(used);
  b.Leave();
  // It pauses, and is not in line when the next turn begins.
  REQUIRE(a.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(b.Enter());
  clock.Advance(kMillisecond);
  CHECK(a.Enter());
  clock.Advance(length - kMillisecond - 2 * kMicrosecond);
  CHECK(a.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(a.Enter());
  a.Leave();
  HaveWholeTurn(b, a);
  REQUIRE(a.Enter());
  CHECK_FALSE(b.Enter());
  clock.Advance(DeviceTurn::kLength - kMicrosecond);
  CHECK(a.Enter());
}

TEST_CASE_METHOD(TurnFixture,
                 "Work that overruns goes to the end of the line, and on in its own turns") {
  const auto over = [this](DeviceTurn::Member& member) {
    clock.Advance(DeviceTurn::kLength);
    member.Proceed();
  };
  REQUIRE(a.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(b.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(c.Enter());
  over(a);
  clock.Advance(DeviceTurn::kGrace - kMicrosecond);
  a.Proceed();
  CHECK_FALSE(b.Enter());
  CHECK(processes.WordsOf(0).overruns == 0);
  clock.Advance(kMicrosecond);
  a.Proceed();
  CHECK(processes.WordsOf(0).overruns == 1);
  CHECK_FALSE(a.Enter());
  CHECK_FALSE(c.Enter());
  REQUIRE(b.Enter());
  CHECK(processes.all[1].kept == std::vector<bool>{true});
  // The work of b overruns, too.
  over(b);
  clock.Advance(DeviceTurn::kGrace);
  b.Proceed();
  CHECK(processes.all[1].kept == std::vector<bool>{true, false});
  CHECK_FALSE(b.Enter());
  REQUIRE(c.Enter());
  CHECK(processes.all[2].kept == std::vector<bool>{true});
  CHECK_FALSE(a.Enter());
  c.Leave();
  CHECK(processes.all[2].kept == std::vector<bool>{true});
  CHECK_FALSE(c.Enter());
  // The turns of the work that overran have no grace.
  CHECK_FALSE(b.Enter());
  a.Proceed();
  CHECK(processes.all[0].kept == std::vector<bool>{true});
  CHECK(processes.WordsOf(0).overruns == 0);
  CHECK(a.Enter());
  over(a);
  a.Proceed();
  CHECK(processes.all[0].kept == std::vector<bool>{true, false});
  CHECK_FALSE(c.Enter());
  b.Proceed();
  b.Leave();  // complete in its own turn
  REQUIRE(c.Enter());
  c.Leave();
  REQUIRE(a.Enter());
  CHECK(processes.all[0].kept == std::vector<bool>{true, false});  // nothing overruns any more
  a.Leave();
  CHECK(processes.WordsOf(0).ticket == 0);
  // A process whose work did not overrun changes its slice once, when nothing has overrun for long.
  REQUIRE(c.Enter());
  c.Leave();
  CHECK(processes.all[2].kept == std::vector<bool>{true});
  clock.Advance(DeviceTurn::kKeepAfter);
  REQUIRE(c.Enter());
  CHECK(processes.all[2].kept == std::vector<bool>{true, false});
}

TEST_CASE_METHOD(TurnFixture,
                 "Work that overruns and ends in the turn of another process leaves the line") {
  REQUIRE(a.Enter());
  CHECK_FALSE(b.Enter());
  clock.Advance(DeviceTurn::kLength);
  CHECK_FALSE(a.Enter());
  clock.Advance(DeviceTurn::kGrace);
  a.Proceed();
  REQUIRE(b.Enter());
  a.Leave();
  CHECK(processes.WordsOf(0).overruns == 0);
  CHECK(processes.WordsOf(0).ticket == 0);
  // A session of its process that waited meanwhile keeps the place.
  CHECK_FALSE(a2.Enter());
  clock.Advance(DeviceTurn::kLength);
  CHECK_FALSE(b.Enter());
  b.Leave();
  CHECK(a2.Enter());
  CHECK(processes.all[0].kept.empty());
}

TEST_CASE_METHOD(TurnFixture, "Work that comes into the hardware without a turn waits there") {
  REQUIRE(a.Enter());
  clock.Advance(kMillisecond);
  CHECK(a.Enter());
  CHECK(processes.all[0].kept.empty());
  CHECK_FALSE(b.Enter());
  b.Outside();
  clock.Advance(kMillisecond);
  a.Proceed();
  CHECK(processes.all[0].kept == std::vector{true});
  clock.Advance(kMillisecond);
  a.Proceed();
  SECTION("and gets its turn") {
    a.Leave();
    CHECK(processes.all[0].kept == std::vector{true, false});
    REQUIRE(b.Enter());
    CHECK(processes.WordsOf(1).overruns == 0);
    b.Leave();
    CHECK(processes.all[1].kept.empty());
  }
  SECTION("or is complete before") {
    b.GiveUp();
    CHECK(processes.WordsOf(1).overruns == 0);
    CHECK(processes.WordsOf(1).ticket == 0);
    clock.Advance(kMillisecond);
    a.Proceed();
    CHECK(processes.all[0].kept == std::vector{true, false});
    a.Leave();
    CHECK(processes.all[0].kept == std::vector{true, false});
  }
}

TEST_CASE_METHOD(TurnFixture,
                 "A turn that is over ends also if its session waits for another one") {
  REQUIRE(a.Enter());
  REQUIRE(a2.Enter());
  CHECK_FALSE(b.Enter());
  clock.Advance(DeviceTurn::kLength);
  CHECK_FALSE(a2.Enter());
  a2.Leave();
  // The first session has no work in the hardware any more, but its thread waits for the second one.
  CHECK_FALSE(a2.Enter());
  CHECK(processes.WordsOf(0).overruns == 0);
  clock.Advance(DeviceTurn::kGrace);
  CHECK_FALSE(a2.Enter());
  CHECK(processes.WordsOf(0).overruns != 0);
  REQUIRE(b.Enter());
  b.Leave();
  REQUIRE(a2.Enter());
  a2.Leave();
  a.Leave();
  CHECK(processes.WordsOf(0).ticket == 0);
  CHECK(processes.WordsOf(0).overruns == 0);
}

TEST_CASE_METHOD(TurnFixture, "A process that never gives up the device is overtaken") {
  REQUIRE(a.Enter());  // and is not heard of again
  clock.Advance(kMicrosecond);
  CHECK_FALSE(b.Enter());
  clock.Advance(kMicrosecond);
  CHECK_FALSE(c.Enter());
  clock.Advance(DeviceTurn::kOvertakeTimeout - kMillisecond);
  CHECK_FALSE(b.Enter());
  clock.Advance(2 * kMillisecond);
  CHECK_FALSE(c.Enter());
  REQUIRE(b.Enter());
  CHECK(processes.all[1].kept == std::vector<bool>{true});
  CHECK_FALSE(c.Enter());
  clock.Advance(DeviceTurn::kLength);
  CHECK_FALSE(b.Enter());  // its turn is as long as any
  b.Leave();
  CHECK(processes.all[1].kept == std::vector<bool>{true});
  // The next one waits anew, so the first one progresses meanwhile.
  CHECK_FALSE(b.Enter());
  CHECK_FALSE(c.Enter());
  clock.Advance(DeviceTurn::kOvertakeTimeout);
  CHECK_FALSE(b.Enter());
  REQUIRE(c.Enter());
  c.Leave();
  // The first one is overtaken sooner by those who know it.
  CHECK_FALSE(b.Enter());
  clock.Advance(DeviceTurn::kLength);
  CHECK(b.Enter());
}

TEST_CASE_METHOD(TurnFixture, "Several processes that never give up the device are overtaken") {
  processes.WordsOf(0).ticket = 1;
  processes.WordsOf(1).ticket = 2;
  CHECK_FALSE(c.Enter());
  clock.Advance(2 * DeviceTurn::kOvertakeTimeout - kMillisecond);
  processes.WordsOf(1).ticket = 3;  // whatever they store
  CHECK_FALSE(c.Enter());
  clock.Advance(kMillisecond);
  CHECK(c.Enter());
}

TEST_CASE_METHOD(TurnFixture, "Nonsense in the words of another process stops nobody") {
  TurnWords& words = processes.WordsOf(1);
  words.ticket = std::numeric_limits<uint64_t>::max();
  words.weight = 0;
  words.overruns = 7;
  words.draws = 1;
  CHECK_FALSE(a.Enter());
  clock.Advance(20 * kMillisecond);
  REQUIRE(a.Enter());
  a.Leave();
  words.ticket = 1;
  words.overruns = 0;
  words.draws = 0;
  CHECK_FALSE(a.Enter());
  clock.Advance(DeviceTurn::kOvertakeTimeout);
  CHECK(a.Enter());
}

TEST_CASE_METHOD(TurnFixture, "A process that is gone does not count") {
  REQUIRE(a.Enter());
  CHECK_FALSE(b.Enter());
  CHECK(processes.all[1].turn->shared());
  for (EnginePeers::Peer& peer : processes.all[1].peers.peers) peer.id = 0;
  CHECK_FALSE(processes.all[1].turn->shared());
  CHECK(b.Enter());
}

TEST_CASE("Processes see whether others have work") {
  ManualClock clock;
  Processes processes(2, clock);
  CHECK_FALSE(processes.all[1].turn->OthersBusy());
  processes.all[0].turn->AddBusy(uint64_t{1} << 16);
  CHECK(processes.all[1].turn->OthersBusy());
  CHECK_FALSE(processes.all[0].turn->OthersBusy());
  CHECK_FALSE(processes.all[1].turn->OthersUrgent());
  processes.all[0].turn->AddBusy(-(uint64_t{1} << 16));
  CHECK_FALSE(processes.all[1].turn->OthersBusy());
  processes.all[0].turn->AddUrgent(1);
  CHECK(processes.all[1].turn->OthersBusy());
  CHECK(processes.all[1].turn->OthersUrgent());
  CHECK_FALSE(processes.all[0].turn->OthersUrgent());
}

TEST_CASE("Threads of four processes never have the device at once, and all of them get it") {
  constexpr int kProcesses = 4, kThreads = 2, kRounds = 300;
  const RealClock clock;
  Processes processes(kProcesses, clock);
  std::array<std::atomic<int>, kProcesses> inside{}, rounds{};
  std::atomic<int> beside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kProcesses * kThreads; ++i) {
    threads.emplace_back([&, process = i % kProcesses] {
      DeviceTurn::Member member(processes.all[process].turn.get());
      for (int round = 0; round < kRounds; ++round) {
        while (!member.Enter()) std::this_thread::yield();
        ++inside[process];
        for (int other = 0; other < kProcesses; ++other) {
          if (other != process && inside[other] != 0) ++beside;
        }
        std::this_thread::yield();
        --inside[process];
        member.Leave();
        ++rounds[process];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A thread that loses its CPU for long is overtaken, or its work overruns.
  size_t kept = 0;
  for (const Processes::Process& process : processes.all) kept += process.kept.size();
  CHECK((beside == 0 || kept > 0));
  for (const std::atomic<int>& each : rounds) CHECK(each == kRounds * kThreads);
}

}  // namespace
}  // namespace detshare
