#include "tools/text/table.h"

#include <catch2/catch.hpp>

namespace detshare::text {
namespace {

TEST_CASE("Columns line up, numbers flush right, with no blanks at the end of a line") {
  Table table({"tenant", "kernels", "state"});
  table.Add({"alice", "7", "running"});
  table.Add({"bo", "1,234", ""});
  CHECK(table.ToString(1) ==
        " tenant  kernels  state\n"
        " alice         7  running\n"
        " bo        1,234\n");
}

TEST_CASE("In a narrow terminal, names lose their middle, and columns that may go are left out") {
  Table table({"SESSION", "TENANT", "COPIED", "MEMORY"});
  table.Add({"7", "inference-of-the-first-team", "1 GiB", "2 GiB"});
  table.Add({"12", "inference-of-the-other-team", "3 GiB", "4 GiB"});
  table.MayDrop({"COPIED"});
  CHECK(table.ToString(0, 52) == table.ToString());
  CHECK(table.ToString(0, 46) ==
        "SESSION  TENANT                 COPIED  MEMORY\n"
        "      7  inference...irst-team   1 GiB   2 GiB\n"
        "     12  inference...ther-team   3 GiB   4 GiB\n");
  CHECK(table.ToString(0, 38) ==
        "SESSION  TENANT                 MEMORY\n"
        "      7  inference...irst-team   2 GiB\n"
        "     12  inference...ther-team   4 GiB\n");
}

TEST_CASE("A last column of sentences is folded at blanks") {
  Table table({"NAME", "MEANING"});
  table.Add({"window", "the largest device time in flight of best-effort work"});
  table.Add({"lead", "short"});
  CHECK(table.ToString(0, 40) ==
        "NAME    MEANING\n"
        "window  the largest device time in\n"
        "        flight of best-effort work\n"
        "lead    short\n");
  CHECK(table.ToString(2, 42) ==
        "  NAME    MEANING\n"
        "  window  the largest device time in\n"
        "          flight of best-effort work\n"
        "  lead    short\n");
}

TEST_CASE("Numbers and headers stay whole, however narrow the terminal is") {
  Table table({"A LONG HEADER", "COUNT"});
  table.Add({"x", "1,234,567,890"});
  CHECK(table.ToString(0, 5) == table.ToString());
  table.Add({"a text that is longer than its header", "1"});
  const std::string narrow = table.ToString(0, 1);
  CHECK(narrow.find("1,234,567,890") != std::string::npos);
  CHECK(narrow.find("A LONG HEADER") != std::string::npos);
}

TEST_CASE("Long texts keep both ends") {
  CHECK(Shortened("short", 5) == "short");
  CHECK(Shortened("model-server-pod-17", 12) == "model...d-17");
  CHECK(Shortened("abcdef", 3) == "abc");
  CHECK(Shortened("abcdef", 0) == "");
}

TEST_CASE("A table without rows is only its header") {
  Table table({"a", "b"});
  CHECK(table.empty());
  CHECK(table.ToString() == "a  b\n");
}

TEST_CASE("Sizes have three digits at most and never a thousand of a unit") {
  CHECK(Bytes(0) == "0 B");
  CHECK(Bytes(999) == "999 B");
  CHECK(Bytes(1000) == "0.98 KiB");
  CHECK(Bytes(1024) == "1 KiB");
  CHECK(Bytes(640 << 10) == "640 KiB");
  CHECK(Bytes(3ull << 29) == "1.5 GiB");
  CHECK(Bytes(141ull << 30) == "141 GiB");
  CHECK(Bytes(UINT64_MAX) == "16 EiB");
}

TEST_CASE("Durations show the two largest units") {
  CHECK(Duration(-5) == "0 ms");
  CHECK(Duration(850) == "850 ms");
  CHECK(Duration(12'345) == "12 s");
  CHECK(Duration(185'000) == "3 min 5 s");
  CHECK(Duration(7'800'000) == "2 h 10 min");
  CHECK(Duration(7'200'000) == "2 h");
  CHECK(Duration(4 * 86'400'000ll + 3 * 3'600'000 + 5) == "4 d 3 h");
}

TEST_CASE("Programs are shown by name and arguments, as far as there is room") {
  CHECK(Program("") == "");
  CHECK(Program("python3 /tmp/train.py") == "python3 /tmp/train.py");
  CHECK(Program("/usr/bin/python3 /tmp/train.py") == "python3 /tmp/train.py");
  CHECK(Program("/opt/deep/folder/of/some/where/or/other/serve --port 80") == "serve --port 80");
  CHECK(Program("python3 -c " + std::string(300, 'x')) ==
        "python3 -c " + std::string(26, 'x') + "...");
  CHECK(Program("/ends/in/a/") == "");
}

TEST_CASE("Counts have separators between thousands") {
  CHECK(Count(0) == "0");
  CHECK(Count(999) == "999");
  CHECK(Count(1000) == "1,000");
  CHECK(Count(1234567) == "1,234,567");
}

TEST_CASE("Counted nouns have a plural unless there is one") {
  CHECK(Counted(0, "error") == "0 errors");
  CHECK(Counted(1, "error") == "1 error");
  CHECK(Counted(1234, "error") == "1,234 errors");
}

TEST_CASE("A column that stays whole is shown whole or not at all") {
  const std::string path = "/run/detshare/engines/chat/detshared.sock";
  Table table({"GROUP", "SOCKET", "STATE"});
  table.Add({"chat-of-a-long-name", path, "ok"});
  table.KeepWhole("SOCKET");
  CHECK(table.ToString(0, 65).find(path) != std::string::npos);
  CHECK(table.ToString(0, 40).find(path) != std::string::npos);
  table.MayDrop({"SOCKET"});
  CHECK(table.ToString(0, 65).find(path) != std::string::npos);
  CHECK(table.ToString(0, 40) ==
        "GROUP                STATE\n"
        "chat-of-a-long-name  ok\n");
}

TEST_CASE("A column is left out on request, whatever the width") {
  Table table({"TENANT", "OWNER", "AGE"});
  table.Add({"a", "b", "1 s"});
  table.Drop("OWNER");
  table.Drop("NONE");
  CHECK(table.ToString() ==
        "TENANT  AGE\n"
        "a       1 s\n");
}

}  // namespace
}  // namespace detshare::text
