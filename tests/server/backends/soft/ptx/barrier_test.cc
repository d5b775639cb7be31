// Barriers of blocks and clusters whose warps are diverged or end early.
#include <catch2/catch.hpp>
#include <string>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

constexpr char kBarrierKernels[] = R"(
.version 8.0
.target sm_90
.address_size 64
// The second block arrives and ends. A warp of the first block waits for the other one.
.visible .entry leaves(.param .u64 out)
{
  .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %d<2>;
  .shared .align 4 .u32 flag;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %cluster_ctarank;
  setp.eq.u32 %p0, %r2, 1;
  @%p0 bra LEAVE;
  setp.lt.u32 %p1, %r1, 32;
  @%p1 bra READ;
  mov.u32 %r3, 0;
SPIN:
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p2, %r3, 50000;
  @%p2 bra SPIN;
  st.volatile.shared.u32 [flag], 1;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  ret;
READ:
  barrier.cluster.arrive;
  barrier.cluster.wait;
  ld.volatile.shared.u32 %r4, [flag];
  ld.param.u64 %d1, [out];
  mad.wide.u32 %d1, %r1, 4, %d1;
  st.global.u32 [%d1], %r4;
  ret;
LEAVE:
  barrier.cluster.arrive;
  ret;
}
// The halves of each warp pass the barrier twice, in different branches.
.visible .entry halves(.param .u64 out)
{
  .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r1, %r2, %r3, %r1;
  mad.wide.u32 %d1, %r1, 4, %d1;
  and.b32 %r4, %r1, 31;
  setp.lt.u32 %p0, %r4, 16;
  mov.u32 %r2, 0;
  @%p0 bra FAST;
  barrier.cluster.arrive;
SPIN:
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, 20000;
  @%p1 bra SPIN;
  barrier.cluster.wait;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  st.global.u32 [%d1], %r2;
  ret;
FAST:
  barrier.cluster.arrive;
  barrier.cluster.wait;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  st.global.u32 [%d1], 7;
  ret;
}
// Odd and even lanes come to the barrier in different branches.
.visible .entry branches(.param .u64 out)
{
  .reg .pred %p<4>; .reg .b32 %r<5>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d1, %r1, 4, %d1;
  and.b32 %r2, %r1, 1;
  setp.eq.u32 %p0, %r2, 1;
  setp.lt.u32 %p1, %r1, 5;
  @%p0 bra ODD;
  barrier.sync 1, 64;
  barrier.red.popc.u32 %r3, 2, 64, %p1;
  bra DONE;
ODD:
  barrier.sync 1, 64;
  barrier.red.popc.u32 %r3, 2, 64, !%p1;
DONE:
  st.global.u32 [%d1], %r3;
}
// The lower half of the first warp arrives twice, the other half does so after it has set a flag.
.visible .entry arrivals(.param .u64 out)
{
  .reg .pred %p<4>; .reg .b32 %r<5>; .reg .b64 %d<2>;
  .shared .align 4 .u32 flag;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d1, %r1, 4, %d1;
  mov.u32 %r3, 0;
  setp.ge.u32 %p0, %r1, 32;
  @%p0 bra WAIT;
  setp.lt.u32 %p1, %r1, 16;
  @%p1 bra FAST;
SPIN:
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p2, %r3, 50000;
  @%p2 bra SPIN;
  st.volatile.shared.u32 [flag], 1;
  barrier.arrive 1, 64;
  barrier.arrive 1, 64;
  ret;
FAST:
  barrier.arrive 1, 64;
  barrier.arrive 1, 64;
  ret;
WAIT:
  barrier.sync 1, 64;
  ld.volatile.shared.u32 %r3, [flag];
  barrier.sync 1, 64;
  st.global.u32 [%d1], %r3;
}
)";

TEST_CASE(
    "Threads that end after they have arrived do not stand for others at a cluster's barrier") {
  Memory memory;
  Program program(&memory, kBarrierKernels);
  uint32_t* out = memory.New<uint32_t>(32);
  LaunchConfig config = Config(2, 64, Params().Add(out));
  config.cluster = {2, 1, 1};
  REQUIRE(program.Run("leaves", config).fault.ToString() == Fault{}.ToString());
  for (int t = 0; t < 32; ++t) CHECK(out[t] == 1);
}

TEST_CASE("Lanes of a warp may wait at a cluster's barrier in different branches") {
  for (const uint32_t threads : {32u, 40u}) {
    Memory memory;
    Program program(&memory, kBarrierKernels);
    uint32_t* out = memory.New<uint32_t>(2 * threads);
    LaunchConfig config = Config(2, threads, Params().Add(out));
    config.cluster = {2, 1, 1};
    REQUIRE(program.Run("halves", config).fault.ToString() == Fault{}.ToString());
    for (uint32_t t = 0; t < 2 * threads; ++t) CHECK(out[t] == (t % 32 < 16 ? 7 : 20000));
  }
}

TEST_CASE("A barrier with a count counts the lanes of all branches of a warp as one warp") {
  Memory memory;
  Program program(&memory, kBarrierKernels);
  // The second warp has some threads only.
  uint32_t* out = memory.New<uint32_t>(40);
  REQUIRE(program.Run("branches", Config(1, 40, Params().Add(out))).fault.ToString() ==
          Fault{}.ToString());
  // The odd lanes from 5 on, and the even ones below 5.
  for (int t = 0; t < 40; ++t) CHECK(out[t] == 18 + 3);
}

TEST_CASE("A part of a warp that arrives twice at a barrier with a count is no warp") {
  Memory memory;
  Program program(&memory, kBarrierKernels);
  uint32_t* out = memory.New<uint32_t>(64);
  REQUIRE(program.Run("arrivals", Config(1, 64, Params().Add(out))).fault.ToString() ==
          Fault{}.ToString());
  for (int t = 32; t < 64; ++t) CHECK(out[t] == 1);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
