// A warp's loads and stores give the same results and count the same sectors, whatever pattern the
// lanes' addresses have.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <string>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

constexpr uint32_t kThreads = 32;
constexpr uint32_t kSlots = 64;     // places of an access in the memory under test
constexpr uint32_t kMaxBytes = 16;  // of an access
constexpr uint32_t kMemory = kSlots * kMaxBytes;

struct Shape {
  const char* type;
  uint32_t bytes;  // of an element
  uint32_t parts;
  bool extends_sign = false;
  uint32_t access() const { return bytes * parts; }
};

// Loads from or stores to memory at `slots[thread]`, in units of the access. In shared memory the
// kernel first copies the memory there, and afterwards back.
std::string Kernel(const Shape& shape, const std::string& space, bool store) {
  const bool shared = space != "global";
  const std::string address = space == "shared" ? "%a" : "%x1";
  const std::string access = (space == "generic" ? "" : "." + space) +
                             std::string(shape.parts == 1   ? ""
                                         : shape.parts == 2 ? ".v2"
                                                            : ".v4") +
                             "." + shape.type;
  const std::string one = shape.bytes == 8 ? "%q" : "%r";
  std::string registers;
  for (uint32_t k = 0; k < shape.parts; ++k)
    registers += (k == 0 ? "" : ", ") + one + std::to_string(k);
  if (shape.parts > 1) registers = "{" + registers + "}";
  std::string text =
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".visible .entry k(.param .u64 memory, .param .u64 slots, .param .u64 values)\n{\n"
      ".reg .b32 %r<4>; .reg .b64 %q<4>; .reg .b32 %t, %a, %i; .reg .b64 %x<5>; .reg .pred %p;\n"
      ".shared .align 16 .b8 buffer[" +
      std::to_string(kMemory) +
      "];\n"
      "mov.u32 %t, %tid.x;\n"
      "ld.param.u64 %x1, [memory]; ld.param.u64 %x2, [slots]; ld.param.u64 %x3, [values];\n"
      // One more lane than the warp's may take another way.
      "mad.wide.u32 %x2, %t, 4, %x2; ld.global.u32 %i, [%x2];\n"
      "setp.eq.u32 %p, %i, 0xffffffff; @%p bra DONE;\n"
      "mul.lo.u32 %i, %i, " +
      std::to_string(shape.access()) + ";\nmov.u32 %a, buffer;\n";
  if (shared) {
    for (uint32_t at = 0; at < kMemory; at += 8) {
      text += "ld.global.b64 %q0, [%x1+" + std::to_string(at) + "]; st.shared.b64 [%a+" +
              std::to_string(at) + "], %q0;\n";
    }
  }
  text += "mov.u64 %x4, %x1;\nadd.u32 %a, %a, %i;\n";
  if (space == "generic")
    text += "cvt.u64.u32 %x1, %a; cvta.shared.u64 %x1, %x1;\n";
  else
    text += "cvt.u64.u32 %x2, %i; add.u64 %x1, %x1, %x2;\n";
  const uint32_t stride = shape.parts * 8;
  text += "mad.wide.u32 %x3, %t, " + std::to_string(stride) + ", %x3;\n";
  if (store) {
    for (uint32_t k = 0; k < shape.parts; ++k) {
      text += "ld.global.b" + std::to_string(shape.bytes == 8 ? 64 : 32) + " " + one +
              std::to_string(k) + ", [%x3+" + std::to_string(8 * k) + "];\n";
    }
    text += "st" + access + " [" + address + "], " + registers + ";\n";
    if (shared) {
      for (uint32_t at = 0; at < kMemory; at += 8) {
        text += "ld.shared.b64 %q0, [buffer+" + std::to_string(at) + "]; st.global.b64 [%x4+" +
                std::to_string(at) + "], %q0;\n";
      }
    }
  } else {
    text += "ld" + access + " " + registers + ", [" + address + "];\n";
    for (uint32_t k = 0; k < shape.parts; ++k) {
      text += "st.global.b" + std::to_string(shape.bytes == 8 ? 64 : 32) + " [%x3+" +
              std::to_string(8 * k) + "], " + one + std::to_string(k) + ";\n";
    }
  }
  return text + "DONE: ret;\n}\n";
}

constexpr uint32_t kIdle = UINT32_MAX;  // the lane takes no part

struct Pattern {
  const char* name;
  std::function<uint32_t(uint32_t)> slot;
};

const std::vector<Pattern>& Patterns() {
  static const std::vector<Pattern> patterns = [] {
    std::mt19937 random(7);
    std::vector<uint32_t> order(kSlots);
    for (uint32_t i = 0; i < kSlots; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    return std::vector<Pattern>{
        {"one address", [](uint32_t) { return 5u; }},
        {"consecutive", [](uint32_t i) { return i; }},
        {"consecutive to the end", [](uint32_t i) { return i + kSlots - kThreads; }},
        {"backwards", [](uint32_t i) { return kThreads - 1 - i; }},
        {"every second", [](uint32_t i) { return 2 * i; }},
        {"two rows", [](uint32_t i) { return i % 16 + i / 16 * 40; }},
        {"one row twice", [](uint32_t i) { return i % 16; }},
        {"one address for each row", [](uint32_t i) { return 3 * (i / 16); }},
        {"rows of eight, backwards", [](uint32_t i) { return i % 8 + 8 * (3 - i / 8); }},
        {"rows of four", [](uint32_t i) { return i % 4 + 6 * (i / 4); }},
        {"one address, but for lanes in the middle", [](uint32_t i) { return i == 12 ? 3u : 9u; }},
        {"consecutive, but for lanes in the middle", [](uint32_t i) { return i == 12 ? 40u : i; }},
        {"consecutive but for the last lane", [](uint32_t i) { return i == 31 ? 3u : i; }},
        {"one address but for the first lane", [](uint32_t i) { return i == 0 ? 3u : 9u; }},
        {"consecutive, without one lane", [](uint32_t i) { return i == 17 ? kIdle : i; }},
        {"one address, half of the lanes", [](uint32_t i) { return i % 2 == 0 ? kIdle : 8u; }},
        {"any order", [order](uint32_t i) { return order[i]; }},
    };
  }();
  return patterns;
}

uint64_t Extended(const Shape& shape, const uint8_t* from) {
  uint64_t value = 0;
  std::memcpy(&value, from, shape.bytes);
  const uint32_t bits = shape.bytes * 8;
  if (shape.extends_sign && (value >> (bits - 1) & 1) != 0) value |= ~uint64_t{0} << bits;
  return shape.bytes == 8 ? value : value & 0xffffffffu;
}

void CheckAccess(const Shape& shape, const std::string& space, bool store) {
  Memory memory;
  Program program(&memory, Kernel(shape, space, store));
  auto* const bytes = memory.New<uint8_t>(kMemory);
  auto* const slots = memory.New<uint32_t>(kThreads);
  auto* const values = memory.New<uint64_t>(kThreads * shape.parts);
  std::mt19937_64 random(11);
  for (const Pattern& pattern : Patterns()) {
    INFO(space << " " << (store ? "st." : "ld.") << shape.type << " v" << shape.parts << ", "
               << pattern.name);
    for (uint32_t i = 0; i < kMemory; ++i) bytes[i] = static_cast<uint8_t>(random());
    for (uint32_t i = 0; i < kThreads * shape.parts; ++i) values[i] = store ? random() : 0;
    std::vector<uint8_t> expected_bytes(bytes, bytes + kMemory);
    std::vector<uint64_t> expected(values, values + kThreads * shape.parts);
    for (uint32_t i = 0; i < kThreads; ++i) {
      slots[i] = pattern.slot(i);
      if (slots[i] == kIdle) continue;
      for (uint32_t k = 0; k < shape.parts; ++k) {
        uint8_t* const at = expected_bytes.data() + slots[i] * shape.access() + k * shape.bytes;
        uint64_t& value = expected[i * shape.parts + k];
        if (store)
          std::memcpy(at, &value, shape.bytes);
        else
          value = Extended(shape, at);
      }
    }
    const Result result =
        program.Run("k", Config(1, kThreads, Params().Add(bytes).Add(slots).Add(values)));
    REQUIRE(result.fault.kind == FaultKind::kNone);
    CHECK(std::equal(expected.begin(), expected.end(), values));
    CHECK(std::equal(expected_bytes.begin(), expected_bytes.end(), bytes));
  }
}

const Shape kShapes[] = {{"u8", 1, 1},  {"s8", 1, 1, true}, {"u16", 2, 1}, {"s16", 2, 1, true},
                         {"u32", 4, 1}, {"u64", 8, 1},      {"u8", 1, 4},  {"u16", 2, 2},
                         {"u32", 4, 2}, {"u32", 4, 4},      {"u64", 8, 2}};

TEST_CASE("Loads give each lane its element, whatever pattern the addresses have") {
  for (const Shape& shape : kShapes) {
    for (const char* space : {"global", "shared", "generic"}) CheckAccess(shape, space, false);
  }
}

TEST_CASE("Stores write each lane's element, and the last lane wins, whatever the pattern") {
  for (const Shape& shape : kShapes) {
    if (shape.extends_sign) continue;
    for (const char* space : {"global", "shared", "generic"}) CheckAccess(shape, space, true);
  }
}

// Block 0 writes vectors of equal elements; block 1 counts the vectors whose elements differ. Both
// stop after `rounds` or as soon as the other has.
std::string RacingKernel(const std::string& vector, const std::string& registers,
                         const std::string& first, const std::string& last, bool wide) {
  const std::string type = wide ? "u64" : "u32", bits = wide ? "b64" : "b32";
  return R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry race(.param .u64 memory, .param .u64 torn, .param .u32 rounds)
{
  .reg .)" +
         bits + R"( %v<4>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  .reg .pred %p;
  ld.param.u64 %rd1, [memory];
  ld.param.u64 %rd2, [torn];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %tid.x;
  mad.wide.u32 %rd1, %r2, 16, %rd1;
  mov.u32 %r2, %ctaid.x;
  setp.ne.u32 %p, %r2, 0;
  @%p bra READ;
WRITE:
  cvt.)" +
         type + R"(.u32 %v0, %r1;
  mov.)" +
         bits + R"( %v1, %v0;
  mov.)" +
         bits + R"( %v2, %v0;
  mov.)" +
         bits + R"( %v3, %v0;
  st.global.)" +
         vector + " [%rd1], " + registers + R"(;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra WRITE;
  ret;
READ:
  ld.volatile.global.)" +
         vector + " " + registers + R"(, [%rd1];
  setp.eq.)" +
         type + " %p, " + first + ", " + last + R"(;
  @%p bra SAME;
  red.global.add.u32 [%rd2], 1;
SAME:
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra READ;
  ret;
}
)";
}

TEST_CASE("No access of up to 16 bytes is torn by an access of another block") {
  Memory memory;
  auto* const vectors = memory.New<uint8_t>(kThreads * 16 + 16);
  const uint64_t begin = (reinterpret_cast<uint64_t>(vectors) + 15) / 16 * 16;
  auto* const torn = memory.New<uint32_t>(1);
  const std::string texts[] = {RacingKernel("v2.u32", "{%v0, %v1}", "%v0", "%v1", false),
                               RacingKernel("v4.u32", "{%v0, %v1, %v2, %v3}", "%v0", "%v3", false),
                               RacingKernel("v2.u64", "{%v0, %v1}", "%v0", "%v1", true)};
  for (const std::string& text : texts) {
    Program program(&memory, text);
    for (const uint32_t threads : {1u, 32u}) {
      std::memset(vectors, 0, kThreads * 16 + 16);
      *torn = 0;
      const Params params = Params().Add(begin).Add(torn).Add(uint32_t{30'000});
      REQUIRE(program.Run("race", Config(2, threads, params), 2).fault.kind == FaultKind::kNone);
      CHECK(*torn == 0);
    }
  }
}

constexpr char kLoad[] = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry load(.param .u64 addresses)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [addresses];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd1, %r1, 8, %rd1;
  ld.global.u64 %rd2, [%rd1];
  ld.global.u32 %r2, [%rd2+4];
  ret;
}
)";

struct LoadFixture {
  LoadFixture() { addresses = memory.New<uint64_t>(kThreads); }
  Result Run(const std::function<uint64_t(uint64_t)>& address) {
    for (uint64_t i = 0; i < kThreads; ++i) addresses[i] = address(i) - 4;
    return program.Run("load", Config(1, kThreads, Params().Add(addresses)));
  }
  Memory memory;
  Program program{&memory, kLoad};
  uint64_t* addresses;
};

TEST_CASE_METHOD(LoadFixture, "The first lane that may not access its address has the fault") {
  const uint64_t words = reinterpret_cast<uint64_t>(memory.New<uint32_t>(20));
  const Fault beyond = Run([&](uint64_t i) { return words + 4 * i; }).fault;
  CHECK(beyond.kind == FaultKind::kIllegalAddress);
  CHECK(beyond.address == words + 80);
  CHECK(Run([&](uint64_t) { return words + 80; }).fault.kind == FaultKind::kIllegalAddress);
  CHECK(Run([&](uint64_t) { return words + 76; }).fault.kind == FaultKind::kNone);
  CHECK(Run([&](uint64_t i) { return words + 2 + 4 * i; }).fault.kind ==
        FaultKind::kMisalignedAddress);
  CHECK(Run([&](uint64_t) { return words + 2; }).fault.kind == FaultKind::kMisalignedAddress);
  // Addresses that wrap around.
  CHECK(Run([&](uint64_t i) { return uint64_t{0} - 64 + 4 * i; }).fault.kind ==
        FaultKind::kIllegalAddress);
}

TEST_CASE_METHOD(LoadFixture, "Each access counts the sectors that its lanes touch at most") {
  const uint64_t words = (reinterpret_cast<uint64_t>(memory.New<uint32_t>(2000)) + 31) / 32 * 32;
  const auto sectors = [&](const std::function<uint64_t(uint64_t)>& address) {
    const CostCounters counters = Run(address).counters;
    // The addresses themselves are 32 consecutive words of 8 bytes.
    const uint64_t begin = reinterpret_cast<uint64_t>(addresses);
    CHECK(counters.global_bytes_read == kThreads * 12);
    return counters.global_sectors - ((begin + 255) / 32 - begin / 32 + 1);
  };
  CHECK(sectors([&](uint64_t) { return words; }) == 1);
  CHECK(sectors([&](uint64_t i) { return words + 4 * i; }) == 4);
  CHECK(sectors([&](uint64_t i) { return words + 16 + 4 * i; }) == 5);
  CHECK(sectors([&](uint64_t i) { return words + 124 - 4 * i; }) == 4);
  CHECK(sectors([&](uint64_t i) { return words + 8 * i; }) == 8);
  CHECK(sectors([&](uint64_t i) { return words + 128 * i; }) == 32);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
