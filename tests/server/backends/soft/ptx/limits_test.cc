// Texts that exceed limits. The parser refuses or decodes them within seconds. A quadratic step
// would take hours.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "server/backends/soft/ptx/module.h"

namespace detshare::soft::ptx::testing {
namespace {

std::string Repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

constexpr char kHeader[] = ".version 8.0\n.target sm_80\n.address_size 64\n";

// Drops the module. The tests only check that the parser comes to an end.
bool Parses(const std::string& body) { return Module::Parse(kHeader + body).ok(); }

TEST_CASE("Endless nesting is refused") {
  CHECK_FALSE(Parses(".visible .entry k() " + Repeat("{", 100000)));
  CHECK_FALSE(Parses(".global .u32 x = " + Repeat("{", 100000)));
  CHECK_FALSE(Parses(".visible .entry k() { mov.u32 " + Repeat("{", 100000)));
}

TEST_CASE("Too many registers, parameters and globals are refused") {
  CHECK_FALSE(
      Parses(".visible .entry k() { .reg .b32 %r<4294967295>; mov.u32 %r4294967294, 1; ret; }"));
  CHECK_FALSE(
      Parses(".visible .entry k(" + Repeat(".param .u64 p,", 10000) + ".param .u64 q) { ret; }"));
  CHECK_FALSE(Parses(Repeat(".global .b8 x[68719476736];", 10)));
}

TEST_CASE("Very many registers that are live at a time come to an end") {
  std::string text = ".visible .entry k() { .reg .b64 %d<100000>;\n";
  for (int i = 0; i < 50000; ++i)
    text += "mov.u64 %d" + std::to_string(i) + ", " + std::to_string(i) + ";\n";
  for (int i = 1; i < 50000; ++i) text += "add.u64 %d0, %d0, %d" + std::to_string(i) + ";\n";
  Parses(text + "}");
  SUCCEED();
}

TEST_CASE("A ladder of branches comes to an end") {
  std::string text = ".visible .entry k() { .reg .pred %p;\n";
  for (int i = 0; i < 20000; ++i)
    text += "@%p bra L" + std::to_string((i * 7919) % 20000) + ";\nL" + std::to_string(i) + ":\n";
  Parses(text + "}");
  SUCCEED();
}

TEST_CASE("A name of very many digits is refused at once") {
  const std::string digits(4 << 20, '1');
  CHECK_FALSE(
      Parses(".visible .entry k() { .reg .b32 %r<5>; mov.u32 %r1, %r" + digits + "; ret; }"));
  CHECK(Parses(".visible .entry k() { .reg .b32 %r11<5>; mov.u32 %r113, %r114; ret; }"));
  CHECK(Parses(".visible .entry k() { .reg .b32 %" + digits + "<5>; mov.u32 %" + digits + "3, %" +
               digits + "4; ret; }"));
}

TEST_CASE("Very many kernels that reach very many calls come to an end") {
  constexpr int kCount = 30000;
  std::string text = ".func f() { ret; }\n.func g() {" + Repeat("call f;", kCount) + "}\n";
  for (int i = 0; i < kCount; ++i)
    text += ".visible .entry k" + std::to_string(i) + "() { call g; }\n";
  CHECK(Parses(text));
  // A chain of calls as deep as the module has functions.
  text = ".func f0() { ret; }\n";
  for (int i = 1; i < kCount; ++i)
    text += ".func f" + std::to_string(i) + "() { call f" + std::to_string(i - 1) + "; }\n";
  CHECK(Parses(text + ".visible .entry k() { call f" + std::to_string(kCount - 1) + "; }"));
}

TEST_CASE("Very many instructions with very many branch targets are refused") {
  const std::string list = "T: .branchtargets " + Repeat("A,", 65535) + "A;\n";
  const std::string begin = ".visible .entry k() { .reg .b32 %r; " + list;
  CHECK(Parses(begin + Repeat("brx.idx %r, T;\n", 8) + "A: ret; }"));
  CHECK_FALSE(Parses(begin + Repeat("brx.idx %r, T;\n", 100000) + "A: ret; }"));
  // Also when each function has only some of them.
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += ".func f" + std::to_string(i) + "() { .reg .b32 %r; T: .branchtargets " +
            Repeat("A,", 999) + "A;\n" + Repeat("brx.idx %r, T;\n", 1000) + "A: ret; }\n";
  }
  CHECK_FALSE(Parses(text));
}

TEST_CASE("Very many declarations are refused") {
  CHECK_FALSE(Parses(Repeat(".func a;\n", 4 << 20)));
  CHECK_FALSE(Parses(Repeat(".alias a, b;\n", 1 << 20)));
  CHECK_FALSE(Parses(".extern .global .b8 " + Repeat("a,", 4 << 20) + "a;"));
  CHECK_FALSE(Parses(".func f() { .local .b8 " + Repeat("a,", 4 << 20) + "a; }"));
  CHECK_FALSE(Parses(Repeat(".func a(.param .b8 a, .param .b8 b, .param .b8 c);\n", 1 << 19)));
  std::string labels = ".func f() {\n";
  for (int i = 0; i < 3 << 20; ++i) labels += "L" + std::to_string(i) + ":";
  CHECK_FALSE(Parses(labels + "}"));
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
