// Accesses at the ends of memory, and where addresses are misaligned.
#include "server/backends/soft/ptx/memory_access.h"

#include <catch2/catch.hpp>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

constexpr char kKernels[] = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry in_shared(.param .u32 offset)
{
  .reg .b32 %r<4>;
  .shared .align 16 .b8 buffer[16];
  ld.param.u32 %r1, [offset];
  mov.u32 %r2, buffer;
  add.u32 %r2, %r2, %r1;
  st.shared.u32 [%r2], %r1;
  ret;
}
.visible .entry in_local(.param .u32 offset)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  .local .align 16 .b8 buffer[16];
  ld.param.u32 %r1, [offset];
  mov.u64 %rd1, buffer;
  cvt.u64.u32 %rd2, %r1;
  add.u64 %rd1, %rd1, %rd2;
  st.local.u32 [%rd1], %r1;
  ret;
}
// Bits: is the address in the shared memory of the block, of the block by its long name, of the cluster?
// For the variable of this block, and of the next one in the cluster.
.visible .entry spaces(.param .u64 words)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<6>;
  .reg .pred %p<4>;
  .shared .align 16 .b8 buffer[16];
  ld.param.u64 %rd1, [words];
  mov.u32 %r1, %cluster_ctarank;
  mul.wide.u32 %rd2, %r1, 8;
  add.u64 %rd1, %rd1, %rd2;
  xor.b32 %r2, %r1, 1;
  mov.u64 %rd3, buffer;
  cvta.shared.u64 %rd3, %rd3;
  mapa.u64 %rd4, %rd3, %r2;
  isspacep.shared %p1, %rd3;
  isspacep.shared::cta %p2, %rd3;
  isspacep.shared::cluster %p3, %rd3;
  selp.u32 %r3, 1, 0, %p1;
  selp.u32 %r4, 2, 0, %p2;
  selp.u32 %r5, 4, 0, %p3;
  add.u32 %r3, %r3, %r4;
  add.u32 %r3, %r3, %r5;
  st.global.u32 [%rd1], %r3;
  isspacep.shared %p1, %rd4;
  isspacep.shared::cta %p2, %rd4;
  isspacep.shared::cluster %p3, %rd4;
  selp.u32 %r3, 1, 0, %p1;
  selp.u32 %r4, 2, 0, %p2;
  selp.u32 %r5, 4, 0, %p3;
  add.u32 %r3, %r3, %r4;
  add.u32 %r3, %r3, %r5;
  st.global.u32 [%rd1+4], %r3;
  ret;
}
.visible .entry in_global(.param .u64 address)
{
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [address];
  st.global.u64 [%rd1], %rd1;
  ret;
}
)";

struct AccessFixture {
  Memory memory;
  Program program{&memory, kKernels};

  template <typename T>
  FaultKind FaultOf(const char* kernel, T parameter) {
    return program.Run(kernel, Config(1, 1, Params().Add(parameter))).fault.kind;
  }
};

TEST_CASE_METHOD(AccessFixture, "Shared memory ends with its last unit of 256 bytes") {
  CHECK(FaultOf<uint32_t>("in_shared", 252) == FaultKind::kNone);
  CHECK(FaultOf<uint32_t>("in_shared", 256) == FaultKind::kIllegalAddress);
  CHECK(FaultOf<uint32_t>("in_shared", 250) == FaultKind::kMisalignedAddress);
}

TEST_CASE_METHOD(AccessFixture, "Local memory is accessed at multiples of the size") {
  CHECK(FaultOf<uint32_t>("in_local", 12) == FaultKind::kNone);
  CHECK(FaultOf<uint32_t>("in_local", 10) == FaultKind::kMisalignedAddress);
}

TEST_CASE_METHOD(AccessFixture,
                 "Shared memory of another block is in the space of the cluster only") {
  uint32_t* const words = memory.New<uint32_t>(4);
  LaunchConfig config = Config(2, 1, Params().Add(words));
  config.cluster = {2, 1, 1};
  REQUIRE(program.Run("spaces", config).fault.kind == FaultKind::kNone);
  for (int block = 0; block < 2; ++block) {
    CHECK(words[2 * block] == 7);
    CHECK(words[2 * block + 1] == 4);
  }
}

TEST_CASE_METHOD(AccessFixture, "An access that begins in an allocation must end in it") {
  uint32_t* const words = memory.New<uint32_t>(3);
  CHECK(FaultOf("in_global", words) == FaultKind::kNone);
  CHECK(FaultOf("in_global", words + 2) == FaultKind::kIllegalAddress);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
