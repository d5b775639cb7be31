// Hostile PTX: mutations of real texts, and texts that ask for too much. The parser must refuse or
// accept them, quickly and without harm, and what it accepts must run without harm.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

std::string Kernels() {
  std::ifstream file("tests/server/backends/soft/ptx/kernels.ptx");
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE(text.str().size() > 10000);
  return text.str();
}

// Entries of the text, each with the declarations in front of it.
std::vector<std::string> Pieces(const std::string& text) {
  std::vector<std::string> pieces;
  const size_t first = text.find(".visible .entry");
  const std::string head = text.substr(0, text.find(".func"));
  size_t at = first;
  while (at != std::string::npos) {
    const size_t next = text.find(".visible .entry", at + 1);
    pieces.push_back(head.substr(0, head.find(".extern")) +
                     text.substr(at, next == std::string::npos ? next : next - at));
    at = next;
  }
  return pieces;
}

std::string Mutate(std::string text, std::mt19937_64& random) {
  static const char* const kWords[] = {"%r1",
                                       "%rd1",
                                       "%p1",
                                       ".b64",
                                       ".u8",
                                       "4294967295",
                                       "-1",
                                       "{",
                                       "}",
                                       ";",
                                       "[",
                                       "]",
                                       "@!%p1",
                                       "0f7F800000",
                                       ".reg .b64 %q<4000000000>;",
                                       "bra",
                                       "call",
                                       "ld.shared.v4.u32",
                                       "$L__BB0_1",
                                       "%tid.x",
                                       "/*",
                                       "\"",
                                       "bar.sync 99;",
                                       "exit;",
                                       "trap;",
                                       ".param .align 4096 .b8 x[9]"};
  const int edits = 1 + static_cast<int>(random() % 4);
  for (int e = 0; e < edits && !text.empty(); ++e) {
    const size_t at = random() % text.size();
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 20);
        break;
      case 2:
        text.insert(at, kWords[random() % std::size(kWords)]);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), random() % 200));
        break;
      case 4:
        text.resize(at);
        break;
      default: {
        // Swap two digits or letters: keeps the text well-formed most often.
        const size_t other = random() % text.size();
        if (std::isalnum(static_cast<unsigned char>(text[at])) &&
            std::isalnum(static_cast<unsigned char>(text[other]))) {
          std::swap(text[at], text[other]);
        }
      }
    }
  }
  return text;
}

void RunBriefly(Memory* memory, const std::string& text) {
  auto module = Module::Parse(text);
  if (!module.ok()) {
    CHECK(module.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  std::vector<uint64_t> addresses;
  for (const GlobalInfo& g : (*module)->globals())
    addresses.push_back(memory->Allocate(g.size > 65536 ? 0 : g.size));
  auto executable = (*module)->Bind(addresses);
  if (!executable.ok()) return;
  for (size_t k = 0; k < (*module)->kernels().size(); ++k) {
    LaunchConfig config;
    config.block = {40, 1, 1};
    config.params.resize((*module)->kernels()[k].param_bytes);
    auto launch = KernelLaunch::Create(**executable, k, config, {memory, memory, memory});
    if (!launch.ok()) continue;
    BlockRunner runner(launch->get());
    runner.Start(0, {0});
    for (int i = 0; i < 20; ++i) {
      const RunState state = runner.Run(1000);
      if (state == RunState::kDone || state == RunState::kFaulted) break;
    }
  }
}

TEST_CASE("Mutated texts are refused or run without harm") {
  const std::vector<std::string> pieces = Pieces(Kernels());
  std::mt19937_64 random(20240607);
  Memory memory;
  for (int round = 0; round < 60; ++round) {
    for (const std::string& piece : pieces) RunBriefly(&memory, Mutate(piece, random));
  }
}

TEST_CASE("Random instructions over the known names do no harm") {
  static const char* const kOps[] = {"add",
                                     "mul.lo",
                                     "mad.wide",
                                     "div",
                                     "rem",
                                     "fma.rn",
                                     "cvt.rni",
                                     "cvt",
                                     "setp.lt",
                                     "selp",
                                     "mov",
                                     "ld.global",
                                     "st.shared",
                                     "ld.param",
                                     "atom.add",
                                     "atom.shared.cas",
                                     "shfl.sync.idx",
                                     "vote.sync.all",
                                     "bar.sync",
                                     "bra",
                                     "call",
                                     "prmt",
                                     "bfi",
                                     "lop3",
                                     "cvta.shared",
                                     "ld.local.v2",
                                     "st.v4",
                                     "red.add",
                                     "match.any.sync",
                                     "redux.sync.add",
                                     "mbarrier.init",
                                     "cp.async.ca",
                                     "ret",
                                     "exit",
                                     "alloca",
                                     "set.eq",
                                     "sqrt.rn",
                                     "min",
                                     "shf.l.wrap",
                                     "mapa",
                                     "isspacep.shared",
                                     "dp4a",
                                     "mma.sync",
                                     "wmma.load"};
  static const char* const kTypes[] = {".u32", ".s64",   ".f32",  ".f64",     ".b16",     ".pred",
                                       ".u8",  ".f16x2", ".b128", ".u32.u32", ".f32.s64", ""};
  static const char* const kOperands[] = {
      "%r1",     "%r2", "%d1",     "%d2",        "%h1",    "%p1", "%q1", "[%d1]",
      "[%r1+4]", "[x]", "[v]",     "{%r1, %r2}", "(x)",    "7",   "-1",  "0f3F800000",
      "L",       "_",   "%r1|%p1", "!%p1",       "%tid.x", "v",   "x"};
  std::mt19937_64 random(7);
  Memory memory;
  for (int round = 0; round < 4000; ++round) {
    std::string text =
        ".version 8.0\n.target sm_90\n.address_size 64\n.shared .b8 v[64];\n.visible .entry "
        "k(.param .u64 x) {\n"
        ".reg .b32 %r<3>; .reg .b64 %d<3>; .reg .b16 %h<2>; .reg .pred %p<2>; .reg .b128 "
        "%q<2>;\nL:\n";
    const int count = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < count; ++i) {
      if (random() % 4 == 0) text += "@%p1 ";
      text += std::string(kOps[random() % std::size(kOps)]) + kTypes[random() % std::size(kTypes)];
      const int operands = static_cast<int>(random() % 5);
      for (int k = 0; k < operands; ++k)
        text += std::string(k == 0 ? " " : ", ") + kOperands[random() % std::size(kOperands)];
      text += ";\n";
    }
    RunBriefly(&memory, text + "}\n");
  }
}

TEST_CASE("Texts that ask for too much are refused quickly") {
  const std::string header = ".version 8.0\n.target sm_80\n.address_size 64\n";
  const auto start = std::chrono::steady_clock::now();
  auto repeat = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  std::vector<std::string> texts;
  texts.push_back(header + ".visible .entry k() " + repeat("{", 100000));
  texts.push_back(header + ".global .u32 x = " + repeat("{", 100000));
  texts.push_back(header + ".visible .entry k() { mov.u32 " + repeat("{", 100000));
  texts.push_back(
      header + ".visible .entry k() { .reg .b32 %r<4294967295>; mov.u32 %r4294967294, 1; ret; }");
  // Very many live registers.
  std::string live = header + ".visible .entry k() { .reg .b64 %d<100000>;\n";
  for (int i = 0; i < 50000; ++i)
    live += "mov.u64 %d" + std::to_string(i) + ", " + std::to_string(i) + ";\n";
  for (int i = 1; i < 50000; ++i) live += "add.u64 %d0, %d0, %d" + std::to_string(i) + ";\n";
  texts.push_back(live + "}");
  // A ladder of branches.
  std::string ladder = header + ".visible .entry k() { .reg .pred %p;\n";
  for (int i = 0; i < 20000; ++i)
    ladder += "@%p bra L" + std::to_string((i * 7919) % 20000) + ";\nL" + std::to_string(i) + ":\n";
  texts.push_back(ladder + "}");
  texts.push_back(header + ".visible .entry k(" + repeat(".param .u64 p,", 10000) +
                  ".param .u64 q) { ret; }");
  texts.push_back(header + repeat(".global .b8 x[68719476736];", 10));
  for (const std::string& text : texts) {
    Memory memory;
    RunBriefly(&memory, text);
  }
  // Seconds on any machine and under any sanitizer; a quadratic step would take hours.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(300));
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
