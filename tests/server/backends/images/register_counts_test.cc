#include "server/backends/images/register_counts.h"

#include <catch2/catch.hpp>

#include "tests/test_file.h"

namespace detshare::images {
namespace {

std::string ReadImage(const std::string& name) {
  return ReadTestFile("tests/server/backends/images/" + name);
}

TEST_CASE("machine code says how many registers each kernel uses") {
  for (const char* name : {"registers_sm_75.cubin", "registers_sm_90.cubin"}) {
    INFO(name);
    const auto counts = RegisterCounts(ReadImage(name));
    REQUIRE(counts.count("few") == 1);
    REQUIRE(counts.count("many") == 1);
    CHECK(counts.at("few") >= 4);
    CHECK(counts.at("few") <= 16);
    // It keeps 64 values at the same time.
    CHECK(counts.at("many") > 64);
    CHECK(counts.at("many") <= 128);
  }
}

TEST_CASE("machine code that is cut off or none says nothing") {
  const std::string elf = ReadImage("registers_sm_90.cubin");
  for (size_t bytes = 0; bytes < elf.size(); bytes += 97)
    CHECK(RegisterCounts(elf.substr(0, bytes)).size() <= 2);
  CHECK(RegisterCounts("").empty());
  CHECK(RegisterCounts("hello").empty());
}

}  // namespace
}  // namespace detshare::images
