#include "server/base/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

namespace detshare {
namespace {

int NiceOfCallingThread() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

TEST_CASE("A preferred thread runs before others where the process may, and no other thread does") {
  const int usual = NiceOfCallingThread();
  AllowPreferredThreads();
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NICE, &limit) == 0);
  const bool may = geteuid() == 0 || limit.rlim_cur >= 35;
  int preferred = usual;
  std::thread([&] {
    PreferCallingThread();
    preferred = NiceOfCallingThread();
  }).join();
  if (!may) {
    WARN("this process may not lower nice values");
    CHECK(preferred == usual);
  } else if (preferred != usual) {  // a container's root may lack the capability
    CHECK(preferred == -15);
  }
  CHECK(NiceOfCallingThread() == usual);
}

}  // namespace
}  // namespace detshare
