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

TEST_CASE_METHOD(AccessFixture, "An access that begins in an allocation must end in it") {
  uint32_t* const words = memory.New<uint32_t>(3);
  CHECK(FaultOf("in_global", words) == FaultKind::kNone);
  CHECK(FaultOf("in_global", words + 2) == FaultKind::kIllegalAddress);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
