#include "tools/detsharectl/digest_log.h"

#include <catch2/catch.hpp>

namespace detshare::ctl {
namespace {

DigestLog Parse(const std::string& text) {
  const absl::StatusOr<DigestLog> log = ParseDigestLog(text);
  INFO(log.status().message());
  REQUIRE(log.ok());
  return *log;
}

const std::string kRun =
    "#process\t7\tserve\n"
    "7\ts1\t0\t16\taa\t\n"
    "7\ts1\t1\t4096\tbb\t_Z5ScalePff\n"
    "7\ts4\t0\t8\tcc\t_Z5ScalePff\n";

TEST_CASE("Equal runs are equal, whatever ids their processes have") {
  const DigestLog run = Parse(kRun);
  CHECK(ReadsOf(run) == 3);
  CHECK(BytesOf(run) == 4120);
  std::string other = kRun;
  for (char& byte : other)
    if (byte == '7') byte = '9';
  CHECK_FALSE(FirstDifference(run, Parse(other)).has_value());
  CHECK(DigestOf(run) == DigestOf(Parse(other)));
}

TEST_CASE("Threads that made their streams in another order have the same run") {
  const DigestLog other = Parse(
      "#process\t7\tserve\n"
      "7\ts2\t0\t8\tcc\t\n"
      "7\ts1\t0\t16\taa\t\n"
      "7\ts1\t1\t4096\tbb\t\n");
  CHECK_FALSE(FirstDifference(Parse(kRun), other).has_value());
  CHECK(DigestOf(Parse(kRun)) == DigestOf(other));
}

TEST_CASE("The first read that differs is named with its kernel") {
  std::string text = kRun;
  text.replace(text.find("bb"), 2, "bc");
  text.replace(text.find("cc"), 2, "cd");
  const auto difference = FirstDifference(Parse(kRun), Parse(text));
  REQUIRE(difference.has_value());
  CHECK(difference->kind == Difference::Kind::kBytes);
  CHECK(difference->read.number == 1);
  CHECK(Describe(*difference) ==
        "read 2 of stream 1, 4,096 bytes, after the kernel Scale(float*, float)");
  CHECK(DigestOf(Parse(kRun)) != DigestOf(Parse(text)));
}

TEST_CASE("Missing and extra reads are reported") {
  const std::string shorter = kRun.substr(0, kRun.rfind("7\ts4"));
  auto difference = FirstDifference(Parse(kRun), Parse(shorter));
  REQUIRE(difference.has_value());
  CHECK(difference->kind == Difference::Kind::kMissing);
  CHECK(difference->read.place == "s4");
  difference = FirstDifference(Parse(shorter), Parse(kRun));
  REQUIRE(difference.has_value());
  CHECK(difference->kind == Difference::Kind::kMore);
  CHECK(difference->read.place == "s4");
}

TEST_CASE("Processes of one program may begin in any order when they read the same") {
  const std::string two = "#process\t1\ta\n#process\t2\ta\n1\ts1\t0\t4\tx\t\n2\ts1\t0\t4\ty\t\n";
  const std::string swapped =
      "#process\t1\ta\n#process\t2\ta\n1\ts1\t0\t4\ty\t\n2\ts1\t0\t4\tx\t\n";
  CHECK_FALSE(FirstDifference(Parse(two), Parse(swapped)).has_value());
  const auto difference = FirstDifference(Parse(two), Parse("#process\t1\ta\n1\ts1\t0\t4\tx\t\n"));
  REQUIRE(difference.has_value());
  CHECK(difference->kind == Difference::Kind::kProcesses);
}

TEST_CASE(
    "A killed process's last line may have no end; other lines that make no sense are errors") {
  CHECK(ReadsOf(Parse(kRun + "7\ts4\t1\t8")) == 3);
  CHECK(Parse("").empty());
  for (const char* wrong :
       {"7\ts1\t0\t16\taa\t\n", "#process\t7\n", "#process\t7\ta\n7\ts1\tx\t1\ta\t\n",
        "#process\t7\ta\n7\ts1\t1\t1\ta\t\n", "\n"}) {
    CHECK_FALSE(ParseDigestLog(wrong).ok());
  }
}

TEST_CASE("Graph nodes and reads before any kernel have their own texts") {
  Difference difference;
  difference.read = {"g12", 0, 1, "a", ""};
  difference.seen = {"g12", 0, 2, "b", ""};
  CHECK(Describe(difference) == "read 1 of graph node 12, 1 byte, before any kernel: read 2 bytes");
}

}  // namespace
}  // namespace detshare::ctl
