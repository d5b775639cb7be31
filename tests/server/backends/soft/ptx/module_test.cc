#include <catch2/catch.hpp>
#include <string>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

constexpr char kModuleHeader[] = ".version 8.6\n.target sm_80\n.address_size 64\n";

std::string Refused(const std::string& body) {
  const auto module = Module::Parse(kModuleHeader + body);
  REQUIRE_FALSE(module.ok());
  CHECK(module.status().code() == absl::StatusCode::kInvalidArgument);
  return module.status().ToString();
}

TEST_CASE("An unknown instruction is refused by its name and line") {
  const std::string message =
      Refused(".visible .entry k() {\n.reg .b32 %r<3>;\nfrobnicate.fast.u32 %r1, %r2;\nret;\n}\n");
  CHECK(message.find("line 6") != std::string::npos);
  CHECK(message.find("frobnicate.fast.u32") != std::string::npos);
  CHECK(Refused(".visible .entry k() {\n.reg .b32 %r<3>;\nadd.u33 %r1, %r2, %r1;\nret;\n}")
            .find("add.u33") != std::string::npos);
  CHECK(Refused(".visible .entry k() {\n.reg .b32 %r<3>;\nadd.fancy.u32 %r1, %r2, %r1;\nret;\n}")
            .find("add.fancy.u32") != std::string::npos);
  CHECK(Refused(".sparkle .b32 x;\n").find(".sparkle") != std::string::npos);
}

TEST_CASE("Blanks and comments may be before modifiers, and none is needed before an operand") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<3>; .reg .b64 %d<2>;
  ld .param /* the address */ .u64 %d1, [out];
  mov.u32%r1,%laneid;
  mad
    .lo .u32 %r2, %r1, 4, 0;
  cvt.u64.u32%d0,%r2;
  add.u64%d1,%d1,%d0;
  st // a comment
    .global .u32 [%d1], %r1;
  ret;
}
)");
  uint32_t* out = memory.New<uint32_t>(32);
  CHECK(program.Run("k", Config(1, 32, Params().Add(out))).fault.kind == FaultKind::kNone);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == i);
}

TEST_CASE("A module may have instructions that are not executed, if no kernel executes them") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.visible .entry multicast(.param .u64 out, .param .u32 asks) {
  .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %d<2>; .reg .pred %p;
  ld.param.u64 %d1, [out];
  ld.param.u32 %r1, [asks];
  setp.eq.u32 %p, %r1, 0;
  @%p bra STORE;
  multimem.ld_reduce.relaxed.sys.global.add.f32 %f1, [%d1];
  multimem.st.relaxed.sys.global.f32 [%d1], %f1;
STORE:
  st.global.u32 [%d1], 7;
  ret;
}
)");
  uint32_t* out = memory.New<uint32_t>(1);
  const auto run = [&](uint32_t asks) {
    return program.Run("multicast", Config(1, 32, Params().Add(out).Add(asks))).fault;
  };
  CHECK(run(0).kind == FaultKind::kNone);
  CHECK(*out == 7);
  const Fault fault = run(1);
  CHECK(fault.kind == FaultKind::kUnsupportedInstruction);
  CHECK(fault.ToString().find("does not execute in kernel multicast") != std::string::npos);
}

TEST_CASE("Malformed texts are refused") {
  for (const char* body : {
           ".visible .entry k( {",
           ".visible .entry k() { ret;",
           ".visible .entry k() { bra NOWHERE; }",
           ".visible .entry k() { .reg .b32 %r; add.u32 %r, %r; }",
           ".visible .entry k() { .reg .b32 %r; .reg .b64 %d; add.u32 %r, %d, %d, %d; }",
           ".visible .entry k() { .reg .b32 %r; add.u64 %r, %r, %r; }",
           ".visible .entry k() { .reg .b32 %r; @%r ret; }",
           ".visible .entry k() { .reg .b32 %r; mov.u32 %r, unknown; }",
           ".visible .entry k() { call missing; }",
           ".visible .entry k() { L: L: ret; }",
           ".visible .entry k(.param .u32 p) { .reg .b64 %d; ld.param.u64 %d, [p]; }",
           ".visible .entry k() {} .visible .entry k() {}",
           ".global .u32 x[99999999999];",
           ".global .u32 x[2] = {1, 2, 3};",
           ".shared .b8 s[99999999];",
           ".visible .entry k() { .reg .b32 %r<2>; mov.u32 %r5, 1; }",
           ".global .u64 p = nothing;",
       }) {
    INFO(body);
    Refused(body);
  }
  CHECK_FALSE(Module::Parse("").ok());
  CHECK_FALSE(Module::Parse("hello").ok());
  CHECK_FALSE(Module::Parse(".version 8.0\n").ok());
  CHECK_FALSE(Module::Parse(".version 8.0\n.target sm_80\n.address_size 32\n").ok());
}

TEST_CASE("A kernel's description says what its directives and declarations say") {
  const auto module = Module::Parse(std::string(kModuleHeader) + R"(
.const .align 4 .b8 table[12] = {1, 2, 3};
.shared .align 16 .b8 common[100];
.visible .entry k(.param .u8 a, .param .align 16 .b8 b[20], .param .u64 .ptr .global .align 4 c, .param .f32 d)
.maxntid 128, 2, 1
.minnctapersm 3
.maxnreg 64
{
  .local .align 8 .b8 depot[40];
  .shared .align 8 .f64 own[10];
  .reg .b32 %r<3>;
  mov.u32 %r1, common;
  st.shared.u32 [%r1], 5;
  ret;
}
.visible .entry other() .reqntid 32 .reqnctapercluster 2 { ret; }
)");
  REQUIRE(module.ok());
  REQUIRE((*module)->kernels().size() == 2);
  const KernelInfo& k = (*module)->kernels()[static_cast<size_t>((*module)->FindKernel("k"))];
  REQUIRE(k.params.size() == 4);
  CHECK(k.params[1].offset == 16);
  CHECK(k.params[1].size == 20);
  CHECK(k.params[2].offset == 40);
  CHECK(k.params[3].offset == 48);
  CHECK(k.param_bytes == 52);
  CHECK(k.max_threads_per_block == 256);
  CHECK(k.min_blocks_per_sm == 3);
  CHECK(k.max_registers == 64);
  CHECK(k.static_shared_bytes == 112 + 80);
  CHECK(k.local_bytes_per_thread == 48);
  CHECK(k.const_bytes == 12);
  CHECK(k.registers_per_thread >= 8);
  CHECK(k.registers_per_thread <= 64);
  const KernelInfo& other =
      (*module)->kernels()[static_cast<size_t>((*module)->FindKernel("other"))];
  CHECK(other.required_block == std::array<uint32_t, 3>{32, 1, 1});
  CHECK(other.required_cluster == std::array<uint32_t, 3>{2, 1, 1});
  CHECK(other.max_threads_per_block == 32);
  CHECK((*module)->ptx_version() == 86);
  CHECK((*module)->target() == 80);
  CHECK((*module)->FindKernel("nothing") == -1);
}

TEST_CASE("A kernel's local memory is that of the deepest stack, with each recursion once") {
  const auto module = Module::Parse(std::string(kModuleHeader) + R"(
.func leaf() { .local .b8 v[16]; ret; }
.func left() { .local .b8 v[32]; call leaf; ret; }
.func right() { .local .b8 v[64]; call leaf; call leaf; ret; }
.func (.param .b32 r) odd(.param .b32 x);
.func (.param .b32 r) even(.param .b32 x) {
  .local .b8 v[128]; .param .b32 a; .param .b32 b; call (b), odd, (a); call leaf; ret;
}
.func (.param .b32 r) odd(.param .b32 x) {
  .local .b8 v[256]; .param .b32 a; .param .b32 b; call (b), even, (a); ret;
}
.func taken() { .local .b8 v[512]; call left; ret; }
.visible .entry both() { .local .b8 v[1024]; call left; call right; ret; }
.visible .entry recursive() { .param .b32 a; .param .b32 b; call (b), odd, (a); ret; }
.visible .entry indirect(.param .u64 f) {
  .reg .b64 %d<2>; .reg .pred %p;
  mov.u64 %d0, taken;
  call %d0;
  ret;
}
.visible .entry alone() { ret; }
)");
  REQUIRE(module.status().ToString() == "OK");
  const auto local = [&](const char* name) {
    return (*module)
        ->kernels()[static_cast<size_t>((*module)->FindKernel(name))]
        .local_bytes_per_thread;
  };
  CHECK(local("both") == 1024 + 64 + 16);
  CHECK(local("recursive") == 256 + 128 + 16);
  CHECK(local("indirect") == 512 + 32 + 16);
  CHECK(local("alone") == 0);
}

TEST_CASE("Shared variables have the alignment that they declare") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.extern .shared .align 1024 .b8 dynamic[];
.shared .align 4 .b8 common[4];
.visible .entry k(.param .u64 out)
{
  .shared .align 256 .b8 own[8];
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, common;
  mov.u32 %r1, own;
  mov.u32 %r2, dynamic;
  st.global.v2.u32 [%rd0], {%r0, %r1};
  st.global.u32 [%rd0+8], %r2;
  ret;
}
)");
  uint32_t* out = memory.New<uint32_t>(3);
  LaunchConfig config = Config(1, 1, Params().Add(out));
  config.dynamic_shared_bytes = 16;
  REQUIRE(program.Run("k", config).fault.kind == FaultKind::kNone);
  CHECK(out[0] == 0);
  CHECK(out[1] == 256);
  CHECK(out[2] == 1024);
  // What aligns the dynamic part belongs to the static one, as on real GPUs.
  CHECK(program.module().kernels()[0].static_shared_bytes == 1024);
}

TEST_CASE("Initialisers fill globals with numbers, strings and addresses") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.visible .global .align 4 .u32 numbers[4] = {1, 0x10, -1};
.visible .global .align 8 .f64 real = 0d3FF8000000000000;
.visible .global .f32 floats[2] = {0f3F800000, 2.5};
.visible .global .align 8 .u64 pointers[3] = {numbers, generic(numbers)+8, generic(f)};
.visible .global .align 1 .b8 bytes[8] = {0xFF(numbers), 0xFF00(numbers), 0xFF0000(numbers), 4};
.visible .global .align 4 .u32 grid[2][2] = {{1, 2}, {3, 4}};
.func f() { ret; }
.visible .entry k() { ret; }
)");
  const uint32_t* numbers = program.Global<uint32_t>("numbers");
  CHECK(numbers[0] == 1);
  CHECK(numbers[1] == 16);
  CHECK(numbers[2] == 0xffffffffu);
  CHECK(numbers[3] == 0);
  CHECK(*program.Global<double>("real") == 1.5);
  CHECK(program.Global<float>("floats")[0] == 1.0f);
  CHECK(program.Global<float>("floats")[1] == 2.5f);
  const uint64_t* pointers = program.Global<uint64_t>("pointers");
  CHECK(pointers[0] == reinterpret_cast<uint64_t>(numbers));
  CHECK(pointers[1] == reinterpret_cast<uint64_t>(numbers) + 8);
  CHECK(pointers[2] != 0);
  const uint8_t* bytes = program.Global<uint8_t>("bytes");
  CHECK(bytes[0] == (pointers[0] & 0xff));
  CHECK(bytes[1] == (pointers[0] >> 8 & 0xff));
  CHECK(bytes[2] == (pointers[0] >> 16 & 0xff));
  CHECK(bytes[3] == 4);
  CHECK(program.Global<uint32_t>("grid")[3] == 4);
}

TEST_CASE("Lines of a preprocessor are comments") {
  const std::string kernel = ".visible .entry k() {\n  #line 7 \"x.cu\"\n  ret;\n}\n";
  CHECK(Module::Parse("#line 1 \"x.cu\"\n" + std::string(kModuleHeader) + "# 5\n" + kernel).ok());
  CHECK_FALSE(
      Module::Parse(std::string(kModuleHeader) + ".visible .entry k() { # 5\n ret; }").ok());
}

TEST_CASE("Texts link by name") {
  const std::string user = std::string(kModuleHeader) + R"(
.extern .func (.param .b32 r) twice(.param .b32 x);
.extern .global .align 4 .u32 base;
.func (.param .b32 r) local_name(.param .b32 x) {
  .reg .b32 %r; ld.param.u32 %r, [x]; add.u32 %r, %r, 1; st.param.b32 [r], %r; ret;
}
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<4>; .reg .b64 %d;
  ld.global.u32 %r1, [base];
  { .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; call.uni (q), twice, (p); ld.param.b32 %r2, [q]; }
  { .param .b32 p; .param .b32 q; st.param.b32 [p], %r2; call.uni (q), local_name, (p); ld.param.b32 %r3, [q]; }
  ld.param.u64 %d, [out];
  st.global.u32 [%d], %r3;
  ret;
}
)";
  const std::string library = std::string(kModuleHeader) + R"(
.visible .global .align 4 .u32 base = 20;
.func (.param .b32 r) local_name(.param .b32 x) { .reg .b32 %r; mov.u32 %r, 7; st.param.b32 [r], %r; ret; }
.visible .func (.param .b32 r) twice(.param .b32 x) {
  .reg .b32 %r; ld.param.u32 %r, [x]; add.u32 %r, %r, %r; st.param.b32 [r], %r; ret;
}
)";
  CHECK_FALSE(Module::Parse(user).ok());
  CHECK_FALSE(Module::Link({library, library}).ok());
  Memory memory;
  Program program(&memory, {user, library});
  int* out = memory.New<int>(1);
  CHECK(program.Run("k", Config(1, 1, Params().Add(out))).fault.kind == FaultKind::kNone);
  CHECK(*out == 41);
}

TEST_CASE("Parameters and results may be registers, as in hand-written PTX") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.func (.reg .u32 %res) sum(.reg .u32 %x, .reg .u64 %y) {
  .reg .u32 %t;
  cvt.u32.u64 %t, %y;
  add.u32 %res, %x, %t;
  ret;
}
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<4>; .reg .b64 %d<3>;
  mov.u32 %r1, %tid.x;
  mov.u64 %d2, 100;
  call (%r2), sum, (%r1, %d2);
  call (%r3), sum, (%r2, %d2);
  ld.param.u64 %d1, [out];
  mad.wide.u32 %d1, %r1, 4, %d1;
  st.global.u32 [%d1], %r3;
}
)");
  int* out = memory.New<int>(32);
  CHECK(program.Run("k", Config(1, 32, Params().Add(out))).fault.kind == FaultKind::kNone);
  for (int i = 0; i < 32; ++i) CHECK(out[i] == i + 200);
}

TEST_CASE("Branch tables jump by index and refuse an index beyond them") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.visible .entry k(.param .u64 out, .param .u32 modulus) {
  .reg .b32 %r<6>; .reg .b64 %d<3>; .reg .pred %p;
  mov.u32 %r1, %tid.x;
  ld.param.u32 %r4, [modulus];
  rem.u32 %r2, %r1, %r4;
  ts: .branchtargets A, B, C;
  brx.idx %r2, ts;
A: mov.u32 %r3, 10; bra DONE;
B: mov.u32 %r3, 20; bra DONE;
C: mov.u32 %r3, 30;
DONE:
  activemask.b32 %r5;
  setp.ne.u32 %p, %r5, 0xffffffff;
  @%p trap;
  ld.param.u64 %d1, [out];
  mad.wide.u32 %d1, %r1, 4, %d1;
  st.global.u32 [%d1], %r3;
}
)");
  int* out = memory.New<int>(32);
  CHECK(program.Run("k", Config(1, 32, Params().Add(out).Add(3))).fault.ToString() ==
        Fault{}.ToString());
  for (int i = 0; i < 32; ++i) CHECK(out[i] == 10 * (i % 3 + 1));
  CHECK(program.Run("k", Config(1, 32, Params().Add(out).Add(4))).fault.kind ==
        FaultKind::kInvalidPc);
}

TEST_CASE("Branches of one name share their targets, and an inner name hides an outer one") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<4>; .reg .b64 %d<3>;
  mov.u32 %r1, %tid.x;
  and.b32 %r2, %r1, 1;
  mov.u32 %r3, 0;
  T: .branchtargets A, B;
  brx.idx %r2, T;
A: add.u32 %r3, %r3, 1;
  xor.b32 %r2, %r2, 1;
  brx.idx %r2, T;
B: add.u32 %r3, %r3, 10;
  {
    T: .branchtargets C, D;
    and.b32 %r2, %r1, 1;
    brx.idx %r2, T;
C:  add.u32 %r3, %r3, 100;
D:  add.u32 %r3, %r3, 1000;
  }
  ld.param.u64 %d1, [out];
  mad.wide.u32 %d1, %r1, 4, %d1;
  st.global.u32 [%d1], %r3;
}
)");
  int* out = memory.New<int>(32);
  CHECK(program.Run("k", Config(1, 32, Params().Add(out))).fault.ToString() == Fault{}.ToString());
  for (int i = 0; i < 32; ++i) CHECK(out[i] == (i % 2 == 0 ? 1111 : 1010));
}

// Returns what a constant of 64 bits is worth as an operand.
uint64_t Worth(const std::string& expression) {
  INFO(expression);
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.visible .entry k(.param .u64 out) {
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  mov.u64 %d2, )" + expression +
                               R"(;
  st.global.u64 [%d1], %d2;
}
)");
  uint64_t* out = memory.New<uint64_t>(1);
  REQUIRE(program.Run("k", Config(1, 1, Params().Add(out))).fault.kind == FaultKind::kNone);
  return *out;
}

TEST_CASE("An operand may be a constant expression") {
  CHECK(Worth("(1+2)*3") == 9);
  CHECK(Worth("1+2*3") == 7);
  CHECK(Worth("10-2-3") == 5);
  CHECK(Worth("7 % 4") == 3);
  CHECK(Worth("1<<4") == 16);
  CHECK(Worth("1<<65") == 2);
  CHECK(Worth("256>>2+2") == 16);
  CHECK(Worth("-(3)") == static_cast<uint64_t>(-3));
  CHECK(Worth("-3") == static_cast<uint64_t>(-3));
  CHECK(Worth("- -3") == 3);
  CHECK(Worth("~3") == ~uint64_t{3});
  CHECK(Worth("!3") == 0);
  CHECK(Worth("!0 + 4") == 5);
  CHECK(Worth("5 == 5 ? 3 : 4") == 3);
  CHECK(Worth("5 != 5 ? 3 : 4 < 2 ? 6 : 7") == 7);
  CHECK(Worth("6 & 3 | 8 ^ 1") == 11);
  CHECK(Worth("1 && 0 || 2") == 1);
  CHECK(Worth("2 <= 2") == 1);
  CHECK(Worth("WARP_SZ") == 32);
  CHECK(Worth("-WARP_SZ + 2*WARP_SZ") == 32);
  // These are the results of ptxas. It calculates with 64 bits, with a sign unless an operand has
  // none.
  CHECK(Worth("-1 < 0") == 1);
  CHECK(Worth("-1 < 0U") == 0);
  CHECK(Worth("-8 / 2") == static_cast<uint64_t>(-4));
  CHECK(Worth("-8 >> 1") == static_cast<uint64_t>(-4));
  CHECK(Worth("(.u64)-8 >> 1") == static_cast<uint64_t>(-8) >> 1);
  CHECK(Worth("(.s64)0xffffffffffffffff < 0") == 1);
  CHECK(Worth("(-9223372036854775807 - 1) / -1") == uint64_t{1} << 63);
  CHECK(Worth("-8 % 5") == 3);
  CHECK(Worth("(7 % 5) - 100 < 0") == 0);
  CHECK(Worth("(1 ? -1 : 0U) < 0") == 1);
  CHECK(Worth("-8>>65") == static_cast<uint64_t>(-4));
}

TEST_CASE("Bad constant expressions are refused") {
  for (const char* expression :
       {"1 / 0", "1 % 0", "(1", "1 +", "1 ? 2", "1 = 2", "1 + %d1", "()"}) {
    INFO(expression);
    Refused(".visible .entry k() { .reg .b64 %d<3>; mov.u64 %d2, " + std::string(expression) +
            "; ret; }");
  }
  for (const char* prefix : {"(", "-", "~", "1?", "1?1:"}) {
    INFO(prefix);
    std::string text;
    for (int i = 0; i < 100000; ++i) text += prefix;
    Refused(".visible .entry k() { .reg .b64 %d<3>; mov.u64 %d2, " + text + "1; ret; }");
  }
}

TEST_CASE("Arguments of calls and offsets of addresses may be constant expressions") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.func (.reg .u32 %res) sum(.reg .u32 %x, .reg .u32 %y) { add.u32 %res, %x, %y; ret; }
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<4>; .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  call (%r2), sum, ((1+2)*3, 1<<4);
  st.global.u32 [%d1+2*2], %r2;
}
)");
  int* out = memory.New<int>(2);
  CHECK(program.Run("k", Config(1, 1, Params().Add(out))).fault.kind == FaultKind::kNone);
  CHECK(out[1] == 25);
}

TEST_CASE("ldmatrix and stmatrix take generic addresses of shared memory") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.visible .entry k(.param .u64 out, .param .u32 global) {
  .reg .b32 %r<6>; .reg .b64 %d<5>; .reg .pred %p;
  .shared .align 16 .b8 rows[128];
  .shared .align 16 .b8 copy[128];
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %tid.x;
  mov.u64 %d2, rows;
  cvta.shared.u64 %d2, %d2;
  mad.wide.u32 %d3, %r1, 4, %d2;
  st.u32 [%d3], %r1;
  bar.warp.sync -1;
  and.b32 %r2, %r1, 7;
  mad.wide.u32 %d3, %r2, 16, %d2;
  ldmatrix.sync.aligned.m8n8.x1.b16 {%r3}, [%d3];
  mov.u64 %d4, copy;
  cvta.shared.u64 %d4, %d4;
  mad.wide.u32 %d3, %r2, 16, %d4;
  ld.param.u32 %r5, [global];
  setp.ne.u32 %p, %r5, 0;
  @%p mov.u64 %d3, %d1;
  stmatrix.sync.aligned.m8n8.x1.b16 [%d3], {%r3};
  bar.warp.sync -1;
  mad.wide.u32 %d4, %r1, 4, %d4;
  ld.u32 %r4, [%d4];
  mad.wide.u32 %d1, %r1, 4, %d1;
  st.global.u32 [%d1], %r4;
}
)");
  uint32_t* out = memory.New<uint32_t>(32);
  CHECK(program.Run("k", Config(1, 32, Params().Add(out).Add(0))).fault.ToString() ==
        Fault{}.ToString());
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == i);
  CHECK(program.Run("k", Config(1, 32, Params().Add(out).Add(1))).fault.kind ==
        FaultKind::kIllegalAddress);
}

TEST_CASE("An asynchronous copy writes zeros where its predicate ignores the source") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.visible .entry k(.param .u64 out, .param .u64 in) {
  .reg .b32 %r<4>; .reg .b64 %d<5>; .reg .pred %p;
  .shared .align 16 .b8 room[512];
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [in];
  mov.u32 %r1, %tid.x;
  and.b32 %r2, %r1, 1;
  setp.eq.u32 %p, %r2, 1;
  mad.wide.u32 %d2, %r1, 8, %d2;
  @%p mov.u64 %d2, 0;
  mov.u32 %r3, room;
  mad.lo.u32 %r3, %r1, 8, %r3;
  st.shared.u64 [%r3], -1;
  cp.async.ca.shared.global [%r3], [%d2], 8, %p;
  cp.async.wait_all;
  ld.shared.u64 %d3, [%r3];
  setp.ne.u32 %p, %r2, 1;
  @%p cp.async.ca.shared.global [%r3], [%d2], 8, !%p;
  @%p ld.shared.u64 %d4, [%r3];
  @%p add.u64 %d3, %d3, %d4;
  mad.wide.u32 %d1, %r1, 8, %d1;
  st.global.u64 [%d1], %d3;
}
)");
  uint64_t* in = memory.New<uint64_t>(32);
  uint64_t* out = memory.New<uint64_t>(32);
  for (uint64_t i = 0; i < 32; ++i) in[i] = i + 100;
  CHECK(program.Run("k", Config(1, 32, Params().Add(out).Add(in))).fault.ToString() ==
        Fault{}.ToString());
  for (uint64_t i = 0; i < 32; ++i) CHECK(out[i] == (i % 2 == 1 ? 0 : 2 * (i + 100)));
}

TEST_CASE("Code with the device runtime of CUDA 12 loads, and traps where it launches a kernel") {
  Memory memory;
  Program program(&memory, std::string(kModuleHeader) + R"(
.extern .func (.param .b32 result) cnpGetLastError ();
.extern .func (.param .b64 result) __cuda_syscall_CGS_get_intrinsic_handle (.param .b32 which);
.weak .func (.param .b32 result) cudaGetLastError() {
  .reg .b32 %r<2>;
  { .param .b32 got;
    call.uni (got), cnpGetLastError, ();
    ld.param.b32 %r1, [got]; }
  st.param.b32 [result], %r1;
  ret;
}
.visible .entry k(.param .u64 out, .param .u32 asks) {
  .reg .b32 %r<3>; .reg .b64 %d<2>; .reg .pred %p;
  ld.param.u32 %r1, [asks];
  setp.eq.u32 %p, %r1, 0;
  @%p bra STORE;
  { .param .b32 got;
    call.uni (got), cudaGetLastError, ();
    ld.param.b32 %r2, [got]; }
STORE:
  ld.param.u64 %d1, [out];
  st.global.u32 [%d1], 7;
}
)");
  int* out = memory.New<int>(1);
  CHECK(program.Run("k", Config(1, 1, Params().Add(out).Add(0))).fault.kind == FaultKind::kNone);
  CHECK(*out == 7);
  CHECK(program.Run("k", Config(1, 1, Params().Add(out).Add(1))).fault.kind == FaultKind::kTrap);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
