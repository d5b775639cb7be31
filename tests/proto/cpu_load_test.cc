#include "proto/cpu_load.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

namespace detshare {
namespace {

struct CpuLoadFixture {
  CpuLoadFixture() {
    char name[] = "/tmp/cpu_load_XXXXXX";
    const int fd = mkstemp(name);
    REQUIRE(fd >= 0);
    close(fd);
    path = name;
  }
  ~CpuLoadFixture() { unlink(path.c_str()); }

  // Later than the next look.
  void Write(const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    now += CpuLoad::kInterval;
  }

  std::string path;
  int64_t now = 1;
};

TEST_CASE_METHOD(CpuLoadFixture, "CPUs are full while more threads want to run than there are") {
  Write("0.20 0.18 0.12 4/80 11206\n");
  CpuLoad load(path.c_str(), 4);
  CHECK_FALSE(load.Full(now));
  Write("0.20 0.18 0.12 5/80 11206\n");
  CHECK(load.Full(now));
}

TEST_CASE_METHOD(CpuLoadFixture, "The load is read once in an interval, and full CPUs stay so") {
  Write("9.00 9.00 9.00 5/80 11206\n");
  CpuLoad load(path.c_str(), 4);
  REQUIRE(load.Full(now));
  const int64_t seen = now;
  Write("0.20 0.18 0.12 1/80 11206\n");
  CHECK(load.Full(now));
  CHECK(load.Full(seen + CpuLoad::kHold - 1));
  CHECK_FALSE(load.Full(seen + CpuLoad::kHold));
  std::ofstream(path, std::ios::trunc) << "0.20 0.18 0.12 5/80 11206\n";
  CHECK_FALSE(load.Full(seen + CpuLoad::kHold + CpuLoad::kInterval / 2));
  CHECK(load.Full(seen + CpuLoad::kHold + CpuLoad::kInterval));
}

TEST_CASE_METHOD(CpuLoadFixture, "CPUs are not full if the kernel does not say so in that format") {
  for (const std::string text : {"", "x", "1 2 3", "0.20 0.18 0.12 five/80 11206"}) {
    Write(text);
    CpuLoad load(path.c_str(), 1);
    CHECK_FALSE(load.Full(now));
  }
  CpuLoad none((path + ".none").c_str(), 1);
  CHECK_FALSE(none.Full(now));
  CHECK_FALSE(CpuLoad("/proc/loadavg", 1 << 20).Full(now));
}

}  // namespace
}  // namespace detshare
