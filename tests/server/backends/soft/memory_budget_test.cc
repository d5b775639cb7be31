#include "server/backends/soft/memory_budget.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/server/test_windows.h"

namespace detshare::soft {
namespace {

TEST_CASE("A card that a process has alone is used to its last byte") {
  MemoryBudget card(100);
  CHECK(card.Take(60));
  CHECK_FALSE(card.Take(41));
  CHECK_FALSE(card.Take(UINT64_MAX));
  CHECK(card.Take(40));
  CHECK(card.used() == 100);
  card.Give(60);
  CHECK(card.used() == 40);
}

TEST_CASE("Processes with the same file have one card") {
  TestDirectory directory;
  const std::string file = directory.path + "/card";
  CardProcesses one, other;
  REQUIRE(one.Join(file).ok());
  REQUIRE(other.Join(file).ok());
  MemoryBudget first(100, &one), second(100, &other);
  CHECK(first.Take(60));
  CHECK_FALSE(second.Take(41));
  CHECK(second.Take(40));
  CHECK(first.used() == 100);
  CHECK(second.used() == 100);
  first.Give(60);
  CHECK(second.used() == 40);
  {
    CardProcesses another;
    REQUIRE(another.Join(file).ok());
    MemoryBudget third(100, &another);
    CHECK(third.Take(60));
    CHECK_FALSE(first.Take(1));
  }
  CHECK(first.Take(60));
}

TEST_CASE("Memory of a process that was killed is free again") {
  TestDirectory directory;
  const std::string file = directory.path + "/card";
  CardProcesses processes;
  REQUIRE(processes.Join(file).ok());
  MemoryBudget own(100, &processes);
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t other = fork();
  if (other == 0) {
    CardProcesses mine;
    const char taken = mine.Join(file).ok() && MemoryBudget(100, &mine).Take(70) ? 'y' : 'n';
    [[maybe_unused]] const ssize_t written = write(ready[1], &taken, 1);
    for (;;) pause();
  }
  char taken = 0;
  REQUIRE(read(ready[0], &taken, 1) == 1);
  REQUIRE(taken == 'y');
  CHECK(own.used() == 70);
  CHECK_FALSE(own.Take(31));
  kill(other, SIGKILL);
  // Without waitpid(): a zombie holds no memory.
  siginfo_t ended;
  REQUIRE(waitid(P_PID, static_cast<id_t>(other), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(own.Take(100));
  waitpid(other, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("A file that cannot be made is an error") {
  CardProcesses processes;
  CHECK(absl::IsUnavailable(processes.Join("/dev/null/card")));
}

}  // namespace
}  // namespace detshare::soft
