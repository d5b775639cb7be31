#include "server/backends/cuda/graph_gate.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

namespace detshare::cuda {
namespace {

constexpr size_t kDevice = 3, kGroup = 1;

// One of the processes on the GPU.
struct Process {
  std::unique_ptr<EnginePage> page = std::make_unique<EnginePage>();
  EnginePeers peers;
  ManualClock clock;
  GraphGate gate{page->slices[kDevice], &peers, kDevice, clock};

  SliceWords& words() { return page->slices[kDevice]; }
  void Know(const Process& other) {
    peers.peers[0].page = other.page.get();
    peers.peers[0].id = 7;
    peers.used = 1;
  }
  // A graph that runs until End().
  void Launch() {
    while (!gate.Enter(0)) std::this_thread::yield();
    gate.Count(kGroup);
    gate.Leave();
  }
  void End() { words().ended[kGroup] = words().launched[kGroup].load(); }
};

struct Processes {
  Process first, second;
  Processes() {
    first.Know(second);
    second.Know(first);
  }
};

// A change in a thread of its own, which lasts until the test ends it.
class Changing {
 public:
  explicit Changing(GraphGate& gate)
      : thread_([this, &gate] {
          gate.Change([this] {
            begun_ = true;
            while (!end_) std::this_thread::yield();
          });
        }) {}
  ~Changing() { End(); }
  // Gives the thread time for a change that should wait.
  bool begun() const {
    for (int i = 0; i < 200; ++i) std::this_thread::yield();
    return begun_;
  }
  void AwaitBegin() const {
    while (!begun_) std::this_thread::yield();
  }
  void End() {
    end_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> begun_{false}, end_{false};
  std::thread thread_;
};

TEST_CASE_METHOD(Processes, "A change waits until the graphs of all processes have ended") {
  first.Launch();
  second.Launch();
  Changing change(first.gate);
  CHECK_FALSE(change.begun());
  first.End();
  CHECK_FALSE(change.begun());
  second.End();
  change.AwaitBegin();
}

TEST_CASE_METHOD(Processes, "A change waits for launches that are being made") {
  REQUIRE(second.gate.Enter(0));
  Changing change(first.gate);
  CHECK_FALSE(change.begun());
  second.gate.Leave();
  change.AwaitBegin();
}

TEST_CASE_METHOD(Processes, "No graph is launched while a process changes a slice") {
  Changing change(first.gate);
  change.AwaitBegin();
  CHECK_FALSE(first.gate.Enter(0));
  CHECK_FALSE(second.gate.Enter(0));
  CHECK(second.words().entering == 0);
  change.End();
  CHECK(first.gate.Enter(0));
  CHECK(second.gate.Enter(0));
}

TEST_CASE_METHOD(Processes, "A change that waits for a graph lets no further graph begin") {
  second.Launch();
  Changing change(first.gate);
  while (first.words().changing == 0) std::this_thread::yield();
  CHECK_FALSE(second.gate.Enter(0));
  second.End();
  change.AwaitBegin();
}

TEST_CASE_METHOD(Processes,
                 "A change does not wait for ever for a graph, and then not again soon") {
  second.Launch();
  Changing change(first.gate);
  CHECK_FALSE(change.begun());
  // The thread may read the clock later than this one.
  while (!change.begun()) first.clock.Advance(GraphGate::kMaxGraph / 100);
  change.End();
  first.gate.Change([] {});
  first.clock.Advance(GraphGate::kIgnored);
  Changing later(first.gate);
  CHECK_FALSE(later.begun());
  second.End();
}

TEST_CASE_METHOD(Processes,
                 "A launch does not wait for ever for a change, and then not again soon") {
  first.words().changing = 0xffffffff;
  CHECK_FALSE(second.gate.Enter(GraphGate::kMaxChange - 1));
  CHECK(second.gate.Enter(GraphGate::kMaxChange));
  second.gate.Leave();
  CHECK(second.gate.Enter(0));
  second.gate.Leave();
  second.clock.Advance(GraphGate::kIgnored);
  CHECK_FALSE(second.gate.Enter(0));
}

TEST_CASE_METHOD(Processes, "Graphs wait for the changes of a process whose graphs take long") {
  second.Launch();
  Changing ignores(first.gate);
  while (!ignores.begun()) first.clock.Advance(GraphGate::kMaxGraph / 100);
  ignores.End();
  Changing change(second.gate);
  while (second.words().changing == 0) std::this_thread::yield();
  CHECK_FALSE(first.gate.Enter(0));
  second.End();
}

TEST_CASE_METHOD(Processes, "Who is ignored does not hide others") {
  first.words().changing = 1;
  REQUIRE(second.gate.Enter(GraphGate::kMaxChange));
  second.gate.Leave();
  second.words().changing = 1;
  CHECK_FALSE(second.gate.Enter(0));
}

TEST_CASE("A process that is the only one waits for its own graphs") {
  SliceWords words;
  ManualClock clock;
  GraphGate gate(words, nullptr, kDevice, clock);
  bool changed = false;
  gate.Change([&] { changed = true; });
  CHECK(changed);
  REQUIRE(gate.Enter(0));
  CHECK(gate.Count(0) == 1);
  gate.Leave();
  Changing change(gate);
  CHECK_FALSE(change.begun());
  words.ended[0] = 1;
  change.AwaitBegin();
}

TEST_CASE_METHOD(Processes, "A change of this process does not wait for graphs of others") {
  second.Launch();
  bool changed = false;
  first.gate.ChangeHere([&] {
    changed = true;
    CHECK(second.gate.Enter(0));
  });
  CHECK(changed);
}

TEST_CASE_METHOD(Processes, "A change of this process waits for its graphs, and they for it") {
  first.Launch();
  std::atomic<bool> begun{false}, end{false};
  std::thread change([&] {
    first.gate.ChangeHere([&] {
      begun = true;
      while (!end) std::this_thread::yield();
    });
  });
  while (first.gate.Enter(0)) {
    first.gate.Leave();
    std::this_thread::yield();
  }
  CHECK_FALSE(begun);
  first.End();
  while (!begun) std::this_thread::yield();
  CHECK_FALSE(first.gate.Enter(0));
  CHECK(first.gate.Enter(GraphGate::kMaxChange));
  first.gate.Leave();
  end = true;
  change.join();
  CHECK(first.gate.Enter(0));
}

TEST_CASE_METHOD(Processes, "A change of this process may launch graphs, and change again") {
  bool changed = false;
  first.gate.ChangeHere([&] {
    first.Launch();
    first.End();
    first.gate.ChangeHere([&] { changed = true; });
    first.Launch();
    first.End();
  });
  CHECK(changed);
}

TEST_CASE("A change of this process that takes long keeps no other one waiting") {
  Process process;
  bool changed = false;
  process.gate.ChangeHere([&] {
    std::thread([&] { process.gate.ChangeHere([&] { changed = true; }); }).join();
    // Only the thread that changes may launch graphs.
    CHECK(process.gate.Enter(0));
    process.gate.Leave();
  });
  CHECK(changed);
}

TEST_CASE("Who changes launches no graph while another thread changes, too") {
  Process process;
  process.gate.ChangeHere([&] {
    std::thread([&] {
      process.gate.ChangeHere([&] { CHECK_FALSE(process.gate.Enter(0)); });
    }).join();
    CHECK(process.gate.Enter(0));
    process.gate.Leave();
  });
}

TEST_CASE("A graph that waits for a change of this process goes before the next change") {
  Process process;
  bool refused = false;
  process.gate.ChangeHere([&] { std::thread([&] { refused = !process.gate.Enter(0); }).join(); });
  CHECK(refused);
  std::atomic<bool> changed{false};
  std::thread change([&] { process.gate.ChangeHere([&] { changed = true; }); });
  // Gives the thread time for a change that should wait.
  for (int i = 0; i < 200; ++i) std::this_thread::yield();
  CHECK_FALSE(changed);
  CHECK(process.gate.Enter(0));
  process.gate.Leave();
  change.join();
  CHECK(changed);
}

TEST_CASE("A change of this process does not wait for ever for a graph that does not come") {
  Process process;
  process.gate.ChangeHere([&] { std::thread([&] { process.gate.Enter(0); }).join(); });
  std::atomic<bool> changed{false};
  std::thread change([&] { process.gate.ChangeHere([&] { changed = true; }); });
  // The thread may read the clock later than this one.
  while (!changed) {
    process.clock.Advance(GraphGate::kMaxGraph / 100);
    std::this_thread::yield();
  }
  change.join();
}

TEST_CASE("A thread may change on several GPUs at a time, and then again on each") {
  Process first, second;
  int changed = 0;
  first.gate.ChangeHere([&] {
    std::thread([&] { CHECK_FALSE(first.gate.Enter(0)); }).join();
    second.gate.ChangeHere([&] {
      first.gate.ChangeHere([&] { ++changed; });
      second.gate.ChangeHere([&] { ++changed; });
      first.Launch();
      first.End();
    });
  });
  CHECK(changed == 2);
}

TEST_CASE_METHOD(Processes, "Who changes for all processes may launch graphs, and change again") {
  bool changed = false, refused = false;
  first.gate.Change([&] {
    std::thread([&] { refused = !second.gate.Enter(0); }).join();
    first.Launch();
    first.End();
    first.gate.ChangeHere([&] { first.gate.Change([&] { changed = true; }); });
    first.Launch();
    first.End();
  });
  CHECK(changed);
  CHECK(refused);
  CHECK(second.gate.Enter(0));
}

TEST_CASE_METHOD(Processes, "A change of all processes that takes long keeps no slice waiting") {
  first.gate.Change([&] {
    Changing slice(first.gate);
    slice.AwaitBegin();
    CHECK_FALSE(first.gate.Enter(0));
  });
}

// A change in which a graph is launched, in a thread of its own. Its graph begins when `all` such changes
// wait for each other or have launched.
std::thread ChangeAndLaunch(Process& process, std::atomic<int>& came, int all,
                            std::atomic<int>& beside) {
  return std::thread([&process, &came, all, &beside] {
    static std::atomic<int> running{0};
    process.gate.Change([&] {
      ++came;
      while (came < all) std::this_thread::yield();
      while (!process.gate.Enter(0)) std::this_thread::yield();
      if (++running > 1) ++beside;
      std::this_thread::yield();
      --running;
      process.gate.Leave();
    });
  });
}

TEST_CASE_METHOD(Processes, "Processes that change and launch go one after the other") {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> came{0}, beside{0};
    std::thread one = ChangeAndLaunch(first, came, 3, beside);
    std::thread two = ChangeAndLaunch(second, came, 3, beside);
    std::thread three = ChangeAndLaunch(second, came, 3, beside);
    one.join();
    two.join();
    three.join();
    CHECK(beside == 0);
    CHECK(first.words().changing == 0);
    CHECK(second.words().changing == 0);
  }
}

TEST_CASE_METHOD(Processes, "Who withdrew a change waits for graphs that were launched meanwhile") {
  first.gate.Change([&] {
    std::atomic<bool> refused{false}, end{false};
    std::thread other([&] {
      second.gate.Change([&] {
        refused = true;
        while (!end) std::this_thread::yield();
      });
    });
    while (!refused) std::this_thread::yield();
    CHECK_FALSE(first.gate.Enter(0));
    CHECK(first.words().changing == 0);
    end = true;
    other.join();
    second.Launch();
    CHECK_FALSE(first.gate.Enter(0));
    second.End();
    CHECK(first.gate.Enter(0));
    first.gate.Leave();
  });
}

TEST_CASE_METHOD(Processes, "A slice may change beside a change of the process") {
  Changing slice(first.gate);
  slice.AwaitBegin();
  bool changed = false;
  first.gate.ChangeHere([&] { changed = true; });
  CHECK(changed);
}

TEST_CASE("The gate is closed for holds while a graph of the group is launched or in flight") {
  Process process;
  CHECK_FALSE(process.gate.Closed(kGroup));
  REQUIRE(process.gate.Enter(0));
  CHECK(process.gate.Closed(kGroup));
  CHECK(process.gate.Closed(0));
  process.gate.Count(kGroup);
  process.gate.Leave();
  CHECK(process.gate.Closed(kGroup));
  CHECK_FALSE(process.gate.Closed(0));
  process.End();
  CHECK_FALSE(process.gate.Closed(kGroup));
}

TEST_CASE("A launch waits until holds have ended, but not for ever") {
  Process process;
  process.gate.EndHolds();
  int asked = 0;
  process.gate.HaveHolds([&] { return ++asked == 3; });
  process.gate.EndHolds();
  CHECK(asked == 3);
  process.gate.HaveHolds([&] {
    process.clock.Advance(GraphGate::kMaxGraph / 2);
    return false;
  });
  process.gate.EndHolds();
}

TEST_CASE_METHOD(Processes, "Changes and graphs of many threads are kept apart") {
  std::atomic<int> graphs{0}, changes{0}, beside{0};
  std::vector<std::thread> threads;
  for (Process* const process : {&first, &second}) {
    threads.emplace_back([&, process] {
      for (int i = 0; i < 300; ++i) {
        while (!process->gate.Enter(0)) std::this_thread::yield();
        ++graphs;
        process->gate.Count(kGroup);
        process->gate.Leave();
        beside += changes != 0;
        --graphs;
        process->End();
      }
    });
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&, process] {
        for (int i = 0; i < 50; ++i) {
          process->gate.Change([&] {
            ++changes;
            beside += graphs != 0;
            --changes;
          });
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(beside == 0);
}

}  // namespace
}  // namespace detshare::cuda
