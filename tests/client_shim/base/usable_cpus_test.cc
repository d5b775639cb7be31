#include "client_shim/base/usable_cpus.h"

#include <sched.h>

#include <catch2/catch.hpp>

namespace detshare::shim {
namespace {

TEST_CASE("A quota is rounded up to whole CPUs") {
  CHECK(CpusOfQuota("200000 100000\n") == 2);
  CHECK(CpusOfQuota("150000 100000\n") == 2);
  CHECK(CpusOfQuota("1000 100000\n") == 1);
  CHECK(CpusOfQuota("6400000 100000") == 64);
}

TEST_CASE("A malformed quota limits nothing") {
  for (const char* text : {"", "max 100000\n", "100000", "100000 ", "0 100000\n", "100000 0\n",
                           "-1 100000\n", "99999999999999999999 100000\n", "\n", "nonsense"}) {
    CHECK(CpusOfQuota(text) == 0);
  }
  CHECK(CpusOfQuota("18446744073709551615 1\n") > 0);
}

TEST_CASE("A thread that is bound to one CPU may use one") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  CHECK(UsableCpus() >= 1);
  CHECK(UsableCpus() <= CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
  CHECK(UsableCpus() == 1);
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
}

}  // namespace
}  // namespace detshare::shim
