// Corners of atomics and of mbarriers.
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

TEST_CASE_METHOD(AtomicFixture, "The minimum of halves ignores NaN, and -0 is below 0") {
  constexpr uint32_t kNan = 0x7e00, kOne = 0x3c00, kMinusZero = 0x8000;
  CHECK(After("min_f16x2", kNan << 16 | kOne, kOne << 16 | kNan) == (kOne << 16 | kOne));
  CHECK(After("min_f16x2", kNan << 16, kNan << 16 | kMinusZero) == (0x7fffU << 16 | kMinusZero));
  CHECK(After("min_f16x2", kMinusZero, 0) == kMinusZero);
}

TEST_CASE_METHOD(AtomicFixture, "A dropped arrival is expected in no later phase") {
  CHECK(After("drop", 7, 2) == 1);
  CHECK(After("drop", 7, 4) == 0);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
