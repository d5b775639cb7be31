// Kernels that launch kernels, with the bounds that a session has.
#include "server/backends/soft/soft_nested_grids.h"

#include <catch2/catch.hpp>
#include <thread>

#include "tests/server/backends/soft/soft_device_harness.h"

namespace detshare::soft {
namespace {

constexpr uint32_t kMaxDepthExceeded = 65, kPendingCountExceeded = 69;

// What the kernels write.
struct Results {
  uint32_t ran, errors, last_error;
};

constexpr char kText[] = R"(
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2
  (.param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
.extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 p, .param .b64 s);

// Launches one block of one thread of a kernel with the results as its parameter, and counts errors.
.func launch(.param .b64 kernel, .param .b64 results) {
  .reg .pred %p;
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [kernel];
  ld.param.b64 %rd2, [results];
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd1;
    .param .align 4 .b8 p1[12];
    st.param.b32 [p1], 1;
    st.param.b32 [p1+4], 1;
    st.param.b32 [p1+8], 1;
    .param .align 4 .b8 p2[12];
    st.param.b32 [p2], 1;
    st.param.b32 [p2+4], 1;
    st.param.b32 [p2+8], 1;
    .param .b32 p3;
    st.param.b32 [p3], 0;
    .param .b64 r;
    call (r), __cudaCDP2GetParameterBufferV2, (p0, p1, p2, p3);
    ld.param.b64 %rd3, [r];
  }
  st.u64 [%rd3], %rd2;
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd3;
    .param .b64 p1;
    st.param.b64 [p1], 0;
    .param .b32 r;
    call (r), __cudaCDP2LaunchDeviceV2, (p0, p1);
    ld.param.b32 %r1, [r];
  }
  setp.eq.u32 %p, %r1, 0;
  @%p ret;
  atom.global.add.u32 %r2, [%rd2+4], 1;
  st.global.u32 [%rd2+8], %r1;
  ret;
}

.visible .entry count(.param .u64 results) {
  .reg .b32 %r;
  .reg .b64 %rd;
  ld.param.u64 %rd, [results];
  atom.global.add.u32 %r, [%rd], 1;
  ret;
}

// Never ends.
.visible .entry spin(.param .u64 results) {
  .reg .b32 %r;
  .reg .b64 %rd;
  ld.param.u64 %rd, [results];
LOOP:
  ld.volatile.global.u32 %r, [%rd];
  bra LOOP;
}

.visible .entry launch_many(.param .u64 results, .param .u32 children, .param .u32 endless) {
  .reg .pred %p;
  .reg .b32 %r, %e;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [results];
  ld.param.u32 %r, [children];
  mov.u64 %rd2, count;
  ld.param.u32 %e, [endless];
  setp.ne.u32 %p, %e, 0;
  @%p mov.u64 %rd2, spin;
LOOP:
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd2;
    .param .b64 p1;
    st.param.b64 [p1], %rd1;
    call launch, (p0, p1);
  }
  sub.u32 %r, %r, 1;
  setp.ne.u32 %p, %r, 0;
  @%p bra LOOP;
  ret;
}

.visible .entry launch_itself(.param .u64 results) {
  .reg .b32 %r;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [results];
  atom.global.add.u32 %r, [%rd1], 1;
  mov.u64 %rd2, launch_itself;
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd2;
    .param .b64 p1;
    st.param.b64 [p1], %rd1;
    call launch, (p0, p1);
  }
  ret;
}
)";

struct NestedFixture {
  TestDevice device;
  TestSession session{device, 0};
  std::unique_ptr<Library> library = session.Load(kText);
  Results* const results = session.Allocate<Results>(1);

  void Launch(std::string_view kernel, const std::vector<std::byte>& parameters) {
    LaunchShape shape;
    shape.grid = shape.block = {1};
    Require(session.queue().Launch(session.space(), *Require(library->GetKernel(kernel)), shape,
                                   parameters));
  }
};

TEST_CASE_METHOD(NestedFixture, "a kernel is complete when all kernels are that it has launched") {
  Launch("launch_many", Parameters(results, 1000u, 0u));
  Require(session.Finish());
  CHECK(results->ran == 1000);
  CHECK(results->errors == 0);
}

TEST_CASE_METHOD(NestedFixture, "a bounded number of children waits, whatever kernels launch") {
  constexpr uint32_t kMax = 65'536;
  Launch("launch_many", Parameters(results, kMax + 10, 0u));
  Require(session.Finish());
  CHECK(results->ran == kMax);
  CHECK(results->errors == 10);
  CHECK(results->last_error == kPendingCountExceeded);
  // All have gone, so as many can wait again.
  Launch("launch_many", Parameters(results, 10u, 0u));
  Require(session.Finish());
  CHECK(results->ran == kMax + 10);
}

TEST_CASE_METHOD(NestedFixture, "kernels launch kernels down to a bounded depth") {
  Launch("launch_itself", Parameters(results));
  Require(session.Finish());
  CHECK(results->ran == 24);
  CHECK(results->errors == 1);
  CHECK(results->last_error == kMaxDepthExceeded);
}

TEST_CASE_METHOD(NestedFixture,
                 "children that wait take memory of their session, and end with it") {
  Launch("launch_many", Parameters(results, 60'000u, 1u));
  while (session.space().HeldBytes() < 59'000 * sizeof(GridRequest)) std::this_thread::yield();
  session.space().Abandon();
  while (session.space().HeldBytes() != 0) std::this_thread::yield();
  CHECK(results->errors == 0);
}

}  // namespace
}  // namespace detshare::soft
