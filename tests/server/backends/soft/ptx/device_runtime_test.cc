// Kernels that launch kernels, as the interpreter passes their launches on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

constexpr int kInvalidValue = 1, kInvalidDeviceFunction = 98, kNotSupported = 801;

constexpr char kText[] = R"(
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2
  (.param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
.extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 p, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2StreamCreateWithFlags(.param .b64 p, .param .b32 f);
.extern .func (.param .b32 r) __cudaCDP2GetLastError();
.extern .func (.param .b32 r) __cudaCDP2MemcpyAsync
  (.param .b64 to, .param .b64 from, .param .b64 n, .param .b32 kind, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2Memset2DAsync
  (.param .b64 p, .param .b64 pitch, .param .b32 v, .param .b64 w, .param .b64 h, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2DeviceGetCacheConfig(.param .b64 p);

.visible .entry child(.param .u64 x, .param .u32 y) { ret; }
.func (.param .b32 r) other(.param .b32 x) {
  .reg .b32 %r<2>;
  ld.param.b32 %r1, [x];
  st.param.b32 [r], %r1;
  ret;
}

// Launches what `which` names, with a parameter buffer that `spoil` may change, and stores the
// result and the last error.
.visible .entry parent(.param .u64 out, .param .u32 which, .param .u64 stream, .param .u64 spoil)
{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [which];
  ld.param.u64 %rd2, [stream];
  ld.param.u64 %rd6, [spoil];
  mov.u64 %rd3, child;
  setp.eq.u32 %p1, %r1, 1;
  @%p1 mov.u64 %rd3, other;
  setp.eq.u32 %p2, %r1, 2;
  @%p2 mov.u64 %rd3, 64;
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd3;
    .param .align 4 .b8 p1[12];
    st.param.b32 [p1], 5;
    st.param.b32 [p1+4], 6;
    st.param.b32 [p1+8], 7;
    .param .align 4 .b8 p2[12];
    st.param.b32 [p2], 8;
    st.param.b32 [p2+4], 2;
    st.param.b32 [p2+8], 1;
    .param .b32 p3;
    st.param.b32 [p3], 99;
    .param .b64 r;
    call (r), __cudaCDP2GetParameterBufferV2, (p0, p1, p2, p3);
    ld.param.b64 %rd4, [r];
  }
  st.global.u64 [%rd1], %rd4;
  setp.eq.u64 %p3, %rd4, 0;
  @%p3 bra LAST;
  st.u64 [%rd4], 0x1122334455667788;
  st.u32 [%rd4+8], 77;
  setp.ne.u64 %p3, %rd6, 0;
  @%p3 st.u64 [%rd4-48], %rd6;
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd4;
    .param .b64 p1;
    st.param.b64 [p1], %rd2;
    .param .b32 r;
    call (r), __cudaCDP2LaunchDeviceV2, (p0, p1);
    ld.param.b32 %r2, [r];
  }
  st.global.u32 [%rd1+8], %r2;
LAST:
  {
    .param .b32 r;
    call (r), __cudaCDP2GetLastError, ();
    ld.param.b32 %r3, [r];
  }
  st.global.u32 [%rd1+12], %r3;
  ret;
}

.visible .entry launch_nonsense(.param .u64 out, .param .u64 buffer)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [buffer];
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd2;
    .param .b64 p1;
    st.param.b64 [p1], 0;
    .param .b32 r;
    call (r), __cudaCDP2LaunchDeviceV2, (p0, p1);
    ld.param.b32 %r1, [r];
  }
  st.global.u32 [%rd1], %r1;
  ret;
}

.visible .entry others(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd1;
    .param .b32 p1;
    st.param.b32 [p1], 1;
    .param .b32 r;
    call (r), __cudaCDP2StreamCreateWithFlags, (p0, p1);
    ld.param.b32 %r1, [r];
  }
  st.global.u32 [%rd1+8], %r1;
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd1;
    .param .b32 p1;
    st.param.b32 [p1], 0;
    .param .b32 r;
    call (r), __cudaCDP2StreamCreateWithFlags, (p0, p1);
    ld.param.b32 %r2, [r];
  }
  st.global.u32 [%rd1+12], %r2;
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd1;
    .param .b32 r;
    call (r), __cudaCDP2DeviceGetCacheConfig, (p0);
    ld.param.b32 %r3, [r];
  }
  st.global.u32 [%rd1+16], %r3;
  ret;
}

// Copies, and fills rows with 5 in the stream 3. Stores the results.
.visible .entry transfer(.param .u64 out, .param .u64 to, .param .u64 from, .param .u64 bytes,
                         .param .u32 kind, .param .u64 pitch, .param .u64 height)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [to];
  ld.param.u64 %rd3, [from];
  ld.param.u64 %rd4, [bytes];
  ld.param.u32 %r1, [kind];
  ld.param.u64 %rd5, [pitch];
  ld.param.u64 %rd6, [height];
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd2;
    .param .b64 p1;
    st.param.b64 [p1], %rd3;
    .param .b64 p2;
    st.param.b64 [p2], %rd4;
    .param .b32 p3;
    st.param.b32 [p3], %r1;
    .param .b64 p4;
    st.param.b64 [p4], 0;
    .param .b32 r;
    call (r), __cudaCDP2MemcpyAsync, (p0, p1, p2, p3, p4);
    ld.param.b32 %r2, [r];
  }
  st.global.u32 [%rd1], %r2;
  {
    .param .b64 p0;
    st.param.b64 [p0], %rd2;
    .param .b64 p1;
    st.param.b64 [p1], %rd5;
    .param .b32 p2;
    st.param.b32 [p2], 5;
    .param .b64 p3;
    st.param.b64 [p3], %rd4;
    .param .b64 p4;
    st.param.b64 [p4], %rd6;
    .param .b64 p5;
    st.param.b64 [p5], 3;
    .param .b32 r;
    call (r), __cudaCDP2Memset2DAsync, (p0, p1, p2, p3, p4, p5);
    ld.param.b32 %r3, [r];
  }
  st.global.u32 [%rd1+4], %r3;
  ret;
}
)";

class Recorder final : public DeviceRuntime {
 public:
  bool GetAttribute(int, int*) const override { return false; }
  int Launch(ChildLaunch launch) override {
    launches.push_back(std::move(launch));
    return result;
  }
  std::vector<ChildLaunch> launches;
  int result = 0;
};

struct Answer {
  uint64_t buffer;
  int32_t launch, last_error;
};

struct LaunchFixture {
  Memory memory;
  Program program{&memory, kText};
  Recorder recorder;
  Answer* const answer = memory.New<Answer>(1);

  LaunchFixture() { program.set_runtime(&recorder); }
  // Runs `parent` with one thread.
  void Launch(uint32_t which, uint64_t stream = 0, uint64_t spoil = 0) {
    *answer = {1, -1, -1};
    const Result result = program.Run(
        "parent",
        Config(1, 1,
               Params().Add(reinterpret_cast<uint64_t>(answer)).Add(which).Add(stream).Add(spoil)));
    REQUIRE(result.fault.kind == FaultKind::kNone);
  }
};

TEST_CASE_METHOD(LaunchFixture, "A launch has the shape and the parameters that the thread gave") {
  REQUIRE(program.module().launches_kernels());
  Launch(0);
  CHECK(answer->launch == 0);
  CHECK(answer->last_error == 0);
  REQUIRE(recorder.launches.size() == 1);
  const ChildLaunch& launch = recorder.launches[0];
  CHECK(program.module().kernels()[launch.kernel].name == "child");
  CHECK(launch.grid == std::array<uint32_t, 3>{5, 6, 7});
  CHECK(launch.block == std::array<uint32_t, 3>{8, 2, 1});
  CHECK(launch.dynamic_shared_bytes == 99);
  CHECK_FALSE(launch.tail);
  CHECK(launch.params == Params().Add(uint64_t{0x1122334455667788}).Add(uint32_t{77}).bytes());
  MemoryRange range;
  CHECK_FALSE(memory.Find(answer->buffer, &range));  // the buffer is free again
  Launch(0, 3);
  CHECK(recorder.launches[1].tail);
}

TEST_CASE_METHOD(LaunchFixture, "The error of a launch is the thread's last error") {
  recorder.result = 9;
  Launch(0);
  CHECK(answer->launch == 9);
  CHECK(answer->last_error == 9);
}

TEST_CASE_METHOD(LaunchFixture, "What is no kernel cannot be launched") {
  for (const uint32_t which : {1u, 2u}) {
    Launch(which);
    CHECK(answer->buffer == 0);
    CHECK(answer->last_error == kInvalidDeviceFunction);
  }
  // A thread overwrites what lies before its parameters.
  for (const uint64_t spoil : {uint64_t{1}, uint64_t{1} << 48, ~uint64_t{0}}) {
    Launch(0, 0, spoil);
    CHECK(answer->launch == kInvalidDeviceFunction);
  }
  CHECK(recorder.launches.empty());
}

TEST_CASE_METHOD(LaunchFixture, "Parameters at nonsense addresses are refused") {
  uint64_t* const zeros = memory.New<uint64_t>(32);
  for (const uint64_t buffer : {uint64_t{0}, uint64_t{8}, uint64_t{1} << 47, ~uint64_t{0},
                                reinterpret_cast<uint64_t>(zeros + 16)}) {
    answer->launch = -1;
    const Result result = program.Run(
        "launch_nonsense",
        Config(1, 1, Params().Add(reinterpret_cast<uint64_t>(&answer->launch)).Add(buffer)));
    REQUIRE(result.fault.kind == FaultKind::kNone);
    CHECK((answer->launch == kInvalidValue || answer->launch == kInvalidDeviceFunction));
  }
  CHECK(recorder.launches.empty());
}

TEST_CASE_METHOD(LaunchFixture,
                 "Streams need their flag, and other functions say that they are missing") {
  int32_t* const out = memory.New<int32_t>(8);
  const Result result =
      program.Run("others", Config(1, 1, Params().Add(reinterpret_cast<uint64_t>(out))));
  REQUIRE(result.fault.kind == FaultKind::kNone);
  CHECK(out[0] != 0);
  CHECK(out[2] == 0);
  CHECK(out[3] == kInvalidValue);
  CHECK(out[4] == kNotSupported);
}

struct Transfer {
  uint64_t bytes = 8;
  uint32_t kind = 4;
  uint64_t pitch = 8, height = 2;
};

struct TransferFixture : LaunchFixture {
  // Returns the results of the copy and of the fill.
  std::pair<int, int> Run(uint64_t to, uint64_t from, const Transfer& transfer) {
    recorder.launches.clear();
    int32_t* const out = memory.New<int32_t>(2);
    const Params params = Params()
                              .Add(reinterpret_cast<uint64_t>(out))
                              .Add(to)
                              .Add(from)
                              .Add(transfer.bytes)
                              .Add(transfer.kind)
                              .Add(transfer.pitch)
                              .Add(transfer.height);
    REQUIRE(program.Run("transfer", Config(1, 1, params)).fault.kind == FaultKind::kNone);
    return {out[0], out[1]};
  }
  FaultKind RunLaunched(const ChildLaunch& launch) {
    LaunchConfig config;
    config.grid = launch.grid;
    config.block = launch.block;
    config.params = launch.params;
    return program.Run(program.module().kernels()[launch.kernel].name, config).fault.kind;
  }
};

TEST_CASE_METHOD(TransferFixture, "Copies and fills are launches of a kernel of the module") {
  auto* const bytes = memory.New<uint8_t>(20'000);
  auto* const from = memory.New<uint8_t>(20'000);
  std::fill_n(bytes, 20'000, 0);
  for (int i = 0; i < 20'000; ++i) from[i] = static_cast<uint8_t>(1 + i % 251);
  const auto results = Run(reinterpret_cast<uint64_t>(bytes + 1), reinterpret_cast<uint64_t>(from),
                           {.bytes = 9'000, .pitch = 9'500, .height = 2});
  CHECK(results == std::pair(0, 0));
  REQUIRE(recorder.launches.size() == 2);
  CHECK_FALSE(recorder.launches[0].tail);
  CHECK(recorder.launches[1].tail);
  REQUIRE(RunLaunched(recorder.launches[0]) == FaultKind::kNone);
  CHECK(bytes[0] == 0);
  CHECK(std::equal(from, from + 9'000, bytes + 1));
  CHECK(std::count(bytes + 9'001, bytes + 20'000, 0) == 10'999);
  REQUIRE(RunLaunched(recorder.launches[1]) == FaultKind::kNone);
  CHECK(std::count(bytes + 1, bytes + 9'001, 5) == 9'000);
  CHECK(std::count(bytes + 9'001, bytes + 9'501, 0) == 500);
  CHECK(std::count(bytes + 9'501, bytes + 18'501, 5) == 9'000);
  CHECK(std::count(bytes + 18'501, bytes + 20'000, 0) == 1'499);
}

TEST_CASE_METHOD(TransferFixture,
                 "Copies and fills with nonsense are refused, or their kernel faults") {
  constexpr int kInvalidPitch = 12, kInvalidDirection = 21;
  const uint64_t word = reinterpret_cast<uint64_t>(memory.New<uint64_t>(1));
  const auto run = [&](const Transfer& transfer) { return Run(word, word, transfer); };
  CHECK(run({.kind = 5}) == std::pair(kInvalidDirection, 0));
  CHECK(run({.pitch = 7}) == std::pair(0, kInvalidPitch));
  CHECK(run({.bytes = 0}) == std::pair(0, 0));
  CHECK(recorder.launches.empty());
  CHECK(run({.height = 0}) == std::pair(0, 0));
  CHECK(recorder.launches.size() == 1);
  const uint64_t shared = uint64_t{1} << 48;
  CHECK(Run(shared, word, {}) == std::pair(kInvalidValue, kInvalidValue));
  CHECK(Run(word, shared, {}) == std::pair(kInvalidValue, 0));
  // Rows beyond the last address there is.
  CHECK(run({.bytes = ~uint64_t{0}, .pitch = ~uint64_t{0}}) ==
        std::pair(kInvalidValue, kInvalidValue));
  CHECK(run({.pitch = uint64_t{1} << 60, .height = 17}) == std::pair(0, kInvalidValue));
  // Memory that the session does not have.
  CHECK(run({.bytes = 9, .pitch = 9}) == std::pair(0, 0));
  REQUIRE(recorder.launches.size() == 2);
  for (const ChildLaunch& launch : recorder.launches)
    CHECK(RunLaunched(launch) == FaultKind::kIllegalAddress);
}

TEST_CASE("Without a runtime, launches return an error") {
  Memory memory;
  Program program{&memory, kText};
  Answer* const answer = memory.New<Answer>(1);
  const Result result = program.Run("parent", Config(1, 1,
                                                     Params()
                                                         .Add(reinterpret_cast<uint64_t>(answer))
                                                         .Add(0u)
                                                         .Add(uint64_t{0})
                                                         .Add(uint64_t{0})));
  REQUIRE(result.fault.kind == FaultKind::kNone);
  CHECK(answer->launch == kNotSupported);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
