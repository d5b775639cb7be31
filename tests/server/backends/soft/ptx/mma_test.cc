// mma with a sparse matrix A, and mma on single bits.
#include <bit>
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

// Returns "{%a0, %a1}".
std::string Registers(const char* name, uint32_t count) {
  std::string text = "{";
  for (uint32_t i = 0; i < count; ++i)
    text += (i == 0 ? "%" : ", %") + std::string(name) + std::to_string(i);
  return text + "}";
}

// Lane l has its registers of a, b and c in words l * 4 and following, and the metadata in word l.
std::string Kernel(const std::string& opcode, uint32_t na, uint32_t nb, uint32_t nc,
                   const std::string& rest) {
  std::string text =
      ".version 8.6\n.target sm_90\n.address_size 64\n"
      ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pe) {\n"
      ".reg .b32 %t, %e, %a<4>, %b<4>, %c<4>; .reg .b64 %x<6>;\n"
      "mov.u32 %t, %tid.x; mul.wide.u32 %x4, %t, 16; mul.wide.u32 %x5, %t, 4;\n"
      "ld.param.u64 %x0, [pa]; add.u64 %x0, %x0, %x4; ld.param.u64 %x1, [pb]; add.u64 %x1, %x1, "
      "%x4;\n"
      "ld.param.u64 %x2, [pc]; add.u64 %x2, %x2, %x4; ld.param.u64 %x3, [pe]; add.u64 %x3, %x3, "
      "%x5;\n"
      "ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%x0]; ld.global.v4.b32 {%b0, %b1, %b2, %b3}, "
      "[%x1];\n"
      "ld.global.v4.b32 {%c0, %c1, %c2, %c3}, [%x2]; ld.global.b32 %e, [%x3];\n";
  text += opcode + " " + Registers("c", nc) + ", " + Registers("a", na) + ", " +
          Registers("b", nb) + ", " + Registers("c", nc) + rest + ";\n";
  return text + "st.global.v4.b32 [%x2], {%c0, %c1, %c2, %c3};\nret;\n}\n";
}

// The registers of all lanes.
struct Operands {
  Memory memory;
  uint32_t* a = memory.New<uint32_t>(128);
  uint32_t* b = memory.New<uint32_t>(128);
  uint32_t* c = memory.New<uint32_t>(128);
  uint32_t* metadata = memory.New<uint32_t>(32);

  Operands() {
    for (uint32_t* words : {a, b, c}) std::fill_n(words, 128, 0u);
  }
  void Run(const std::string& kernel) {
    Program program(&memory, kernel);
    const Result result =
        program.Run("k", Config(1, 32, Params().Add(a).Add(b).Add(c).Add(metadata)));
    REQUIRE(result.fault.ToString() == Fault{}.ToString());
  }
};

// An element type of a sparse A.
struct Element {
  const char* name;
  uint32_t bits;
  bool integer;
  uint32_t (*encode)(int v);  // of a small number
};

uint32_t FloatBits(int v) { return std::bit_cast<uint32_t>(static_cast<float>(v)); }
// Of numbers with at most 4 significant bits and magnitudes from 1 to 15.
uint32_t SmallFloat(int v, int exponent_bits, int mantissa_bits) {
  if (v == 0) return 0;
  const uint32_t magnitude = static_cast<uint32_t>(v < 0 ? -v : v);
  const int exponent = std::bit_width(magnitude) - 1;
  const uint32_t mantissa = magnitude << mantissa_bits >> exponent & ((1u << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  return (v < 0 ? 1u : 0u) << (exponent_bits + mantissa_bits) |
         static_cast<uint32_t>(exponent + bias) << mantissa_bits | mantissa;
}

constexpr Element kHalf = {"f16", 16, false, [](int v) { return SmallFloat(v, 5, 10); }};
constexpr Element kBfloat = {"bf16", 16, false, [](int v) { return FloatBits(v) >> 16; }};
constexpr Element kTf32 = {"tf32", 32, false, [](int v) { return FloatBits(v); }};
constexpr Element kE4M3 = {"e4m3", 8, false, [](int v) { return SmallFloat(v, 4, 3); }};
constexpr Element kE5M2 = {"e5m2", 8, false, [](int v) { return SmallFloat(v % 4, 5, 2); }};
constexpr Element kS8 = {"s8", 8, true, [](int v) { return static_cast<uint32_t>(v) & 0xff; }};
constexpr Element kU8 = {"u8", 8, true, [](int v) { return static_cast<uint32_t>(v) & 0xff; }};
constexpr Element kS4 = {"s4", 4, true, [](int v) { return static_cast<uint32_t>(v) & 0xf; }};

void Put(uint32_t* words, uint32_t index, uint32_t bits, uint32_t value) {
  words[index * bits / 32] |= value << index * bits % 32;
}

struct SparseCase {
  const char* shape;
  uint32_t k;
  Element a, b;
  uint32_t selectors;    // how many selectors there are
  bool swapped = false;  // the first stored element of a chunk belongs behind the second
};

// The metadata of one row: four bits for each chunk. All chunks differ.
std::vector<uint32_t> RowMetadata(const SparseCase& test, uint32_t row) {
  const uint32_t chunk = test.a.bits == 32 ? 2 : test.a.bits == 4 ? 8 : 4;
  const uint32_t ordered[] = {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110};
  std::vector<uint32_t> nibbles(test.k / chunk);
  for (uint32_t q = 0; q < nibbles.size(); ++q) {
    const uint32_t pick = row * 5 + q * 7 + row * q;
    nibbles[q] = test.a.bits == 32 ? (pick % 2 == 0 ? 0b0100u : 0b1110u) : ordered[pick % 6];
    if (test.swapped) nibbles[q] = nibbles[q] >> 2 | (nibbles[q] & 3) << 2;
  }
  return nibbles;
}

void CheckSparse(const SparseCase& test, const char* variant, uint32_t selector) {
  INFO(test.shape << " " << test.a.name << " " << test.b.name << " " << variant << " " << selector);
  const uint32_t per = 32 / test.a.bits, half = test.k / 2;
  const auto stored = [](uint32_t row, uint32_t column) {
    return static_cast<int>((row * 5 + column * 3) % 7) + 1;
  };
  const auto value_b = [](uint32_t row, uint32_t column) {
    return static_cast<int>((row * 3 + column * 11 + row * row) % 7) + 1;
  };
  Operands operands;
  const uint32_t na = half * 16 / (32 * per), nb = test.k * 8 / (32 * per);
  std::vector<std::vector<uint32_t>> metadata;
  for (uint32_t row = 0; row < 16; ++row) metadata.push_back(RowMetadata(test, row));
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t group = lane / 4, thread = lane % 4;
    for (uint32_t i = 0; i < na * per; ++i) {
      const uint32_t r = i / per, row = group + (r % 2 == 0 ? 0 : 8);
      const uint32_t column = thread * per + i % per + (r < 2 ? 0 : half / 2);
      Put(operands.a + lane * 4, i, test.a.bits, test.a.encode(stored(row, column)));
    }
    for (uint32_t i = 0; i < nb * per; ++i) {
      const uint32_t row = thread * per + i % per + i / per * 4 * per;
      Put(operands.b + lane * 4, i, test.b.bits, test.b.encode(value_b(row, group)));
    }
    for (uint32_t i = 0; i < 4; ++i)
      operands.c[lane * 4 + i] = test.a.integer ? i + lane : FloatBits(static_cast<int>(i + lane));

    // Lanes that the selector leaves out have metadata that would lead elsewhere.
    uint32_t& word = operands.metadata[lane];
    word = 0x44444444;
    const uint32_t lanes = 4 / test.selectors;
    if (thread / lanes != selector) continue;
    word = 0;
    const uint32_t t = thread % lanes;
    for (uint32_t n = 0; n < 8; ++n) {
      const bool halves = test.a.bits >= 16;
      const uint32_t row = halves ? group + n / 4 * 8 : group + t % 2 * 8;
      const uint32_t chunk = halves ? t * 4 + n % 4 : t / 2 * 8 + n;
      word |= metadata[row][chunk] << 4 * n;
    }
  }
  const std::string type = test.a.integer ? "s32" : "f32";
  operands.Run(Kernel(std::string("mma.") + variant + ".sync.aligned." + test.shape + ".row.col." +
                          type + "." + test.a.name + "." + test.b.name + "." + type,
                      na, nb, 4, ", %e, " + std::to_string(selector)));
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + i % 2;
      int sum = static_cast<int>(i + lane);
      for (uint32_t at = 0; at < half; ++at) {
        uint32_t full = 0;
        if (test.a.bits == 32) {
          full = at * 2 + (metadata[row][at] == 0b1110 ? 1 : 0);
        } else if (test.a.bits == 4) {
          full = at / 4 * 8 + (metadata[row][at / 4] >> at / 2 % 2 * 2 & 3) * 2 + at % 2;
        } else {
          full = at / 2 * 4 + (metadata[row][at / 2] >> at % 2 * 2 & 3);
        }
        const int y = value_b(full, column);
        sum += stored(row, at) * (std::string(test.b.name) == "e5m2" ? y % 4 : y);
      }
      const uint32_t got = operands.c[lane * 4 + i];
      CHECK((test.a.integer ? static_cast<double>(static_cast<int>(got))
                            : static_cast<double>(std::bit_cast<float>(got))) == sum);
    }
  }
}

TEST_CASE("A sparse product takes the columns that the metadata names") {
  const SparseCase cases[] = {
      {"m16n8k16", 16, kHalf, kHalf, 4},     {"m16n8k32", 32, kHalf, kHalf, 2},
      {"m16n8k16", 16, kBfloat, kBfloat, 4}, {"m16n8k32", 32, kBfloat, kBfloat, 2},
      {"m16n8k8", 8, kTf32, kTf32, 4},       {"m16n8k16", 16, kTf32, kTf32, 2},
      {"m16n8k32", 32, kS8, kU8, 2},         {"m16n8k64", 64, kU8, kS8, 1},
      {"m16n8k64", 64, kE4M3, kE5M2, 1},     {"m16n8k64", 64, kS4, kS4, 2},
      {"m16n8k128", 128, kS4, kS4, 1},
  };
  for (const SparseCase& test : cases) {
    for (uint32_t selector = 0; selector < test.selectors; ++selector) {
      CheckSparse(test, "sp", selector);
      CheckSparse(test, "sp::ordered_metadata", selector);
    }
  }
  CheckSparse({"m16n8k32", 32, kHalf, kHalf, 2, true}, "sp", 1);
  CheckSparse({"m16n8k64", 64, kS8, kS8, 1, true}, "sp", 0);
}

TEST_CASE("Infinities that meet zeros of a sparse matrix do not count") {
  Operands operands;
  std::fill_n(operands.metadata, 32, 0x44444444u);  // elements 0 and 1 of four
  // A lane has two neighbouring rows of B. Every second pair meets zeros.
  for (uint32_t lane = 0; lane < 32; ++lane) {
    operands.a[lane * 4] = operands.a[lane * 4 + 1] = 0x3c003c00;
    const uint32_t both = lane % 2 == 0 ? 0x3c003c00 : 0x7c007c00;
    operands.b[lane * 4] = operands.b[lane * 4 + 1] = both;
  }
  operands.Run(Kernel("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2,
                      2, 4, ", %e, 0"));
  for (uint32_t i = 0; i < 128; ++i) CHECK(std::bit_cast<float>(operands.c[i]) == 8);
}

TEST_CASE("Sums of sparse integers wrap or saturate") {
  for (const bool saturate : {false, true}) {
    Operands operands;
    std::fill_n(operands.metadata, 32, 0x44444444u);
    for (uint32_t i = 0; i < 128; ++i) {
      operands.a[i] = operands.b[i] = 0x01010101;
      operands.c[i] = 0x7fffffff;
    }
    const std::string modifier = saturate ? "satfinite." : "";
    operands.Run(Kernel("mma.sp.sync.aligned.m16n8k32.row.col." + modifier + "s32.s8.s8.s32", 2, 2,
                        4, ", %e, 0"));
    for (uint32_t i = 0; i < 128; ++i) CHECK(operands.c[i] == (saturate ? 0x7fffffff : 0x8000000f));
  }
}

TEST_CASE("Products of single bits count the bits of exclusive or, or of and") {
  struct Case {
    const char* shape;
    uint32_t m, k;
  };
  for (const Case& test :
       {Case{"m8n8k128", 8, 128}, Case{"m16n8k128", 16, 128}, Case{"m16n8k256", 16, 256}}) {
    for (const bool is_and : {false, true}) {
      INFO(test.shape << is_and);
      Operands operands;
      std::mt19937 random(7);
      const uint32_t na = test.m * test.k / 1024, nb = 8 * test.k / 1024, nc = test.m / 4;
      // Words of 32 bits of the rows of A and of the columns of B.
      uint32_t a[16][8], b[8][8];
      for (auto& row : a)
        for (uint32_t& word : row) word = static_cast<uint32_t>(random());
      for (auto& column : b)
        for (uint32_t& word : column) word = static_cast<uint32_t>(random());
      for (uint32_t lane = 0; lane < 32; ++lane) {
        const uint32_t group = lane / 4, thread = lane % 4;
        for (uint32_t r = 0; r < na; ++r) {
          const bool lower = test.m == 16 && r % 2 == 1;
          operands.a[lane * 4 + r] = a[group + (lower ? 8 : 0)][thread + (r < 2 ? 0 : 4)];
        }
        for (uint32_t r = 0; r < nb; ++r) operands.b[lane * 4 + r] = b[group][thread + r * 4];
        for (uint32_t i = 0; i < nc; ++i) operands.c[lane * 4 + i] = 0x7fffffff - i;
      }
      operands.Run(Kernel(std::string("mma.sync.aligned.") + test.shape +
                              ".row.col.s32.b1.b1.s32." + (is_and ? "and" : "xor") + ".popc",
                          na, nb, nc, ""));
      for (uint32_t lane = 0; lane < 32; ++lane) {
        for (uint32_t i = 0; i < nc; ++i) {
          const uint32_t row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + i % 2;
          uint32_t sum = 0x7fffffff - i;
          for (uint32_t word = 0; word < test.k / 32; ++word) {
            const uint32_t x = a[row][word], y = b[column][word];
            sum += static_cast<uint32_t>(std::popcount(is_and ? x & y : x ^ y));
          }
          CHECK(operands.c[lane * 4 + i] == sum);
        }
      }
    }
  }
}

TEST_CASE("Forms that mma does not have are refused") {
  struct Case {
    const char* opcode;
    uint32_t na, nb, nc;
    const char* rest;
  };
  const Case cases[] = {
      {"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2, 2, 4, ""},
      {"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2, 2, 4, ", %e, 4"},
      {"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2, 2, 4, ", %e, %e"},
      {"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4, ", %e, 0"},
      {"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 4, 4, 4, ", %e, 2"},
      {"mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", 4, 4, 4, ", %e, 1"},
      {"mma.sp.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 2, 2, 4, ", %e, 0"},
      {"mma.sp.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", 2, 2, 4, ", %e, 0"},
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4, ", %e, 0"},
      {"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32", 4, 2, 4, ""},
      {"mma.sync.aligned.m16n8k256.row.col.satfinite.s32.b1.b1.s32.xor.popc", 4, 2, 4, ""},
      {"mma.sync.aligned.m8n8k256.row.col.s32.b1.b1.s32.xor.popc", 2, 2, 2, ""},
      {"mma.sync.aligned.m16n8k64.row.col.s32.b1.b1.s32.xor.popc", 1, 1, 4, ""},
      {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32.xor.popc", 4, 2, 4, ""},
      {"mma.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32", 4, 4, 4, ""},
  };
  for (const Case& test : cases) {
    Memory memory;
    INFO(test.opcode << test.rest);
    CHECK_THROWS(Program(&memory, Kernel(test.opcode, test.na, test.nb, test.nc, test.rest)));
  }
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
