// Corners of atomics and of mbarriers.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

constexpr char kKernels[] = R"(
.version 8.1
.target sm_90
.address_size 64
.visible .entry inc(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  atom.global.inc.u32 %r2, [%rd1], %r1;
  ret;
}
.visible .entry dec(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  atom.global.dec.u32 %r2, [%rd1], %r1;
  ret;
}
.visible .entry add_f32(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  mov.b32 %f1, %r1;
  atom.global.add.f32 %f2, [%rd1], %f1;
  ret;
}
.visible .entry red_v2_f32(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  mov.b32 %f1, %r1;
  red.global.add.v2.f32 [%rd1], {%f1, %f1};
  ret;
}
.visible .entry atom_v4_f32(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .f32 %f<9>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [word];
  mov.f32 %f1, 0f3f800000;
  mov.f32 %f2, 0f40000000;
  mov.f32 %f3, 0f40400000;
  mov.f32 %f4, 0f40800000;
  // Each result has the register of another source.
  atom.global.v4.f32.add {%f4, %f3, %f2, %f1}, [%rd1], {%f1, %f2, %f3, %f4};
  st.global.v4.f32 [%rd1+16], {%f4, %f3, %f2, %f1};
  ret;
}
.visible .entry add_f32_shared(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<2>;
  .shared .align 4 .b8 own[4];
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  mov.b32 %f1, %r1;
  ld.global.u32 %r2, [%rd1];
  st.shared.u32 [own], %r2;
  atom.shared.add.f32 %f2, [own], %f1;
  ld.shared.u32 %r2, [own];
  st.global.u32 [%rd1], %r2;
  ret;
}
// The odd lanes add to shared memory, the even ones to global memory. `word` has 32 words.
.visible .entry add_f32_generic(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<4>;
  .reg .f32 %f<3>;
  .reg .b64 %rd<5>;
  .reg .pred %p<2>;
  .shared .align 4 .b8 own[128];
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  mov.b32 %f1, %r1;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd1, %rd1, %rd2;
  mov.u64 %rd3, own;
  cvta.shared.u64 %rd3, %rd3;
  add.u64 %rd3, %rd3, %rd2;
  ld.global.u32 %r3, [%rd1];
  st.u32 [%rd3], %r3;
  and.b32 %r3, %r2, 1;
  setp.eq.u32 %p1, %r3, 1;
  selp.u64 %rd4, %rd3, %rd1, %p1;
  atom.add.f32 %f2, [%rd4], %f1;
  ld.u32 %r3, [%rd4];
  st.global.u32 [%rd1], %r3;
  ret;
}
.visible .entry min_f16x2(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b16 %h<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  mov.b32 {%h1, %h2}, %r1;
  red.global.min.noftz.v2.f16 [%rd1], {%h1, %h2};
  ret;
}
.visible .entry drop(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  .reg .pred %p<2>;
  .shared .align 8 .b8 barrier[8];
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  mbarrier.init.shared.b64 [barrier], %r1;
  mbarrier.arrive_drop.shared.b64 %rd2, [barrier];
  mbarrier.arrive.shared.b64 %rd2, [barrier];
  mbarrier.arrive.shared.b64 %rd2, [barrier];
  mbarrier.test_wait.shared.b64 %p1, [barrier], %rd2;
  selp.u32 %r2, 1, 0, %p1;
  st.global.u32 [%rd1], %r2;
  ret;
}
.visible .entry drop_no_complete(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  .reg .pred %p<2>;
  .shared .align 8 .b8 barrier[8];
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  mbarrier.init.shared.b64 [barrier], %r1;
  mbarrier.arrive_drop.noComplete.shared.b64 %rd2, [barrier], 1;
  mbarrier.arrive.shared.b64 %rd2, [barrier];
  mbarrier.arrive.shared.b64 %rd2, [barrier];
  mbarrier.arrive.shared.b64 %rd2, [barrier];
  mbarrier.arrive.shared.b64 %rd2, [barrier];
  mbarrier.test_wait.shared.b64 %p1, [barrier], %rd2;
  selp.u32 %r2, 1, 0, %p1;
  st.global.u32 [%rd1], %r2;
  ret;
}
.visible .entry drop_with_bytes(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  .reg .pred %p<2>;
  .shared .align 8 .b8 barrier[8];
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  mbarrier.init.shared.b64 [barrier], 2;
  mbarrier.arrive_drop.expect_tx.shared.b64 %rd2, [barrier], %r1;
  mbarrier.arrive.shared.b64 %rd2, [barrier];
  mbarrier.complete_tx.shared.b64 [barrier], 16;
  mbarrier.test_wait.shared.b64 %p1, [barrier], %rd2;
  selp.u32 %r2, 1, 0, %p1;
  // The next phase expects one arrival.
  mbarrier.arrive.shared.b64 %rd2, [barrier];
  mbarrier.test_wait.shared.b64 %p1, [barrier], %rd2;
  selp.u32 %r1, 2, 0, %p1;
  add.u32 %r2, %r2, %r1;
  st.global.u32 [%rd1], %r2;
  ret;
}
.visible .entry early_bytes(.param .u64 word, .param .u32 value)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  .reg .pred %p<2>;
  .shared .align 8 .b8 barrier[8];
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, 1;
  mbarrier.init.shared.b64 [barrier], %r2;
  mbarrier.complete_tx.shared.b64 [barrier], 16;
  mbarrier.arrive.expect_tx.shared.b64 %rd2, [barrier], %r1;
  mbarrier.test_wait.shared.b64 %p1, [barrier], %rd2;
  selp.u32 %r2, 1, 0, %p1;
  st.global.u32 [%rd1], %r2;
  ret;
}
)";

struct AtomicFixture {
  Memory memory;
  Program program{&memory, kKernels};
  uint32_t* const word = memory.New<uint32_t>(1);

  // Returns what the kernel leaves where `before` was.
  uint32_t After(const char* kernel, uint32_t before, uint32_t value) {
    *word = before;
    const Result result = program.Run(kernel, Config(1, 1, Params().Add(word).Add(value)));
    REQUIRE(result.fault.ToString() == Fault{}.ToString());
    return *word;
  }
};

TEST_CASE_METHOD(AtomicFixture, "Counts wrap at the bound, also from values above it") {
  CHECK(After("inc", 4, 5) == 5);
  CHECK(After("inc", 5, 5) == 0);
  CHECK(After("inc", 9, 5) == 0);
  CHECK(After("dec", 3, 5) == 2);
  CHECK(After("dec", 0, 5) == 5);
  CHECK(After("dec", 5, 5) == 4);
  CHECK(After("dec", 9, 5) == 5);
}

TEST_CASE_METHOD(AtomicFixture, "Bytes may arrive at an mbarrier before they are expected") {
  CHECK(After("early_bytes", 7, 16) == 1);
  CHECK(After("early_bytes", 7, 32) == 0);
  CHECK(After("early_bytes", 7, 0) == 0);
}

TEST_CASE_METHOD(AtomicFixture, "A sum that is not a number is the hardware's one") {
  CHECK(After("add_f32", 0xffc00001, std::bit_cast<uint32_t>(1.0F)) == 0x7fffffff);
}

TEST_CASE_METHOD(AtomicFixture, "Sums of f32 flush subnormal values in global memory only") {
  const uint32_t kSmall = 3, kLeast = 0x00800000, kSign = 0x80000000;
  CHECK(After("add_f32", kSmall, kSmall) == 0);
  CHECK(After("add_f32", kSign | kSmall, kSign | kSmall) == kSign);
  CHECK(After("add_f32", kLeast, kSmall) == kLeast);
  CHECK(After("add_f32", kLeast + 1, kSign | kLeast) == 0);
  CHECK(After("add_f32_shared", kSmall, kSmall) == 2 * kSmall);
  CHECK(After("add_f32_shared", kLeast + 1, kSign | kLeast) == 1);
  uint32_t* const words = memory.New<uint32_t>(32);
  std::fill_n(words, 32, kSmall);
  const Params params = Params().Add(words).Add(kSmall);
  REQUIRE(program.Run("red_v2_f32", Config(1, 1, params)).fault.ToString() == Fault{}.ToString());
  CHECK(words[0] == 0);
  CHECK(words[1] == 0);
  std::fill_n(words, 32, kSmall);
  REQUIRE(program.Run("add_f32_generic", Config(1, 32, params)).fault.ToString() ==
          Fault{}.ToString());
  for (uint32_t i = 0; i < 32; ++i) CHECK(words[i] == (i % 2 == 1 ? 2 * kSmall : 0));
}

TEST_CASE_METHOD(AtomicFixture, "A vector's results may have the registers of its sources") {
  float* const values = memory.New<float>(8);
  for (int i = 0; i < 4; ++i) values[i] = static_cast<float>(10 * (i + 1));
  const Params params = Params().Add(values).Add(0U);
  REQUIRE(program.Run("atom_v4_f32", Config(1, 1, params)).fault.ToString() == Fault{}.ToString());
  for (int i = 0; i < 4; ++i) {
    CHECK(values[i] == static_cast<float>(11 * (i + 1)));
    CHECK(values[4 + i] == static_cast<float>(10 * (i + 1)));
  }
}

TEST_CASE_METHOD(AtomicFixture, "The minimum of halves ignores NaN, and -0 is below 0") {
  constexpr uint32_t kNan = 0x7e00, kOne = 0x3c00, kMinusZero = 0x8000;
  CHECK(After("min_f16x2", kNan << 16 | kOne, kOne << 16 | kNan) == (kOne << 16 | kOne));
  CHECK(After("min_f16x2", kNan << 16, kNan << 16 | kMinusZero) == (0x7fffU << 16 | kMinusZero));
  CHECK(After("min_f16x2", kMinusZero, 0) == kMinusZero);
}

TEST_CASE_METHOD(AtomicFixture, "A dropped arrival is expected in no later phase") {
  CHECK(After("drop", 7, 2) == 1);
  CHECK(After("drop", 7, 4) == 0);
  CHECK(After("drop_no_complete", 7, 3) == 1);
  CHECK(After("drop_no_complete", 7, 4) == 0);
  CHECK(After("drop_with_bytes", 7, 16) == 3);
  CHECK(After("drop_with_bytes", 7, 32) == 0);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
