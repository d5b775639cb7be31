// Native code does what the handlers do: random programs leave the same registers, memory, faults and costs.
#include "server/backends/soft/ptx/native_code.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

constexpr uint32_t kPerClass = 6;       // registers
constexpr uint32_t kThreadBytes = 256;  // of a thread's registers in memory
constexpr uint32_t kBlock = 77;         // two whole warps and a part of one
constexpr uint32_t kBlocks = 2;
constexpr uint32_t kScratch = 4096;

// R, Q, F, D and P stand for random registers of 32 and 64 bits, f32, f64 and predicates; N for a random
// number.
const std::vector<std::string> kInstructions = {
    "mov.b32 R, R",
    "mov.b64 Q, Q",
    "mov.f32 F, F",
    "mov.f64 D, D",
    "mov.b32 R, F",
    "mov.b32 F, R",
    "mov.u32 R, N",
    "add.u32 R, R, R",
    "add.s64 Q, Q, Q",
    "sub.s32 R, R, R",
    "sub.u64 Q, Q, Q",
    "mul.lo.u32 R, R, R",
    "mul.lo.s64 Q, Q, Q",
    "mad.lo.s32 R, R, R, R",
    "mad.lo.u64 Q, Q, Q, Q",
    "mul.hi.u32 R, R, R",
    "mul.hi.s32 R, R, R",
    "mul.wide.u32 Q, R, R",
    "mul.wide.s32 Q, R, R",
    "mad.wide.u32 Q, R, R, Q",
    "mad.wide.s32 Q, R, R, Q",
    "and.b32 R, R, R",
    "or.b64 Q, Q, Q",
    "xor.b32 R, R, N",
    "not.b32 R, R",
    "not.b64 Q, Q",
    "neg.s32 R, R",
    "neg.s64 Q, Q",
    "abs.s32 R, R",
    "abs.s64 Q, Q",
    "min.s32 R, R, R",
    "min.u32 R, R, R",
    "max.s32 R, R, R",
    "max.u32 R, R, R",
    "min.s64 Q, Q, Q",
    "max.u64 Q, Q, Q",
    "shl.b32 R, R, R",
    "shl.b64 Q, Q, R",
    "shr.u32 R, R, R",
    "shr.s32 R, R, R",
    "shr.u64 Q, Q, R",
    "shr.s64 Q, Q, R",
    "shl.b32 R, R, 5",
    "shf.l.wrap.b32 R, R, R, R",
    "shf.r.wrap.b32 R, R, R, R",
    "shf.l.clamp.b32 R, R, R, R",
    "lop3.b32 R, R, R, R, 0x96",
    "lop3.b32 R, R, R, R, 0xca",
    "popc.b32 R, R",
    "clz.b32 R, R",
    "bfe.u32 R, R, R, R",
    "prmt.b32 R, R, R, R",
    "cvt.u64.u32 Q, R",
    "cvt.s64.s32 Q, R",
    "cvt.u32.u64 R, Q",
    "mov.b64 Q, {R, R}",
    "mov.b64 {R, R}, Q",
    "selp.b32 R, R, R, P",
    "selp.b64 Q, Q, Q, P",
    "selp.f32 F, F, F, P",
    "setp.lt.s32 P, R, R",
    "setp.hi.u32 P|P, R, R",
    "setp.ne.s64 P, Q, Q",
    "setp.ge.u64 P, Q, Q",
    "setp.eq.and.s32 P, R, R, P",
    "setp.le.or.s32 P|P, R, R, !P",
    "setp.lt.f32 P, F, F",
    "setp.neu.f32 P, F, F",
    "setp.geu.ftz.f32 P, F, F",
    "setp.num.xor.f32 P, F, F, P",
    "setp.gt.f64 P, D, D",
    "setp.ltu.f64 P, D, D",
    "and.pred P, P, P",
    "or.pred P, P, P",
    "xor.pred P, P, P",
    "not.pred P, P",
    "mov.pred P, P",
    "add.f32 F, F, F",
    "add.ftz.f32 F, F, F",
    "add.sat.f32 F, F, F",
    "sub.f32 F, F, F",
    "mul.f32 F, F, F",
    "mul.ftz.sat.f32 F, F, F",
    "fma.rn.f32 F, F, F, F",
    "fma.rn.ftz.f32 F, F, F, F",
    "fma.rn.sat.f32 F, F, F, F",
    "div.rn.f32 F, F, F",
    "div.approx.f32 F, F, F",
    "div.approx.ftz.f32 F, F, F",
    "sqrt.rn.f32 F, F",
    "rcp.rn.f32 F, F",
    "rcp.approx.ftz.f32 F, F",
    "rsqrt.approx.f32 F, F",
    "rsqrt.approx.ftz.f32 F, F",
    "neg.f32 F, F",
    "abs.ftz.f32 F, F",
    "min.f32 F, F, F",
    "max.f32 F, F, F",
    "max.NaN.f32 F, F, F",
    "min.ftz.f32 F, F, F",
    "add.f64 D, D, D",
    "sub.f64 D, D, D",
    "mul.f64 D, D, D",
    "fma.rn.f64 D, D, D, D",
    "div.rn.f64 D, D, D",
    "sqrt.rn.f64 D, D",
    "rcp.rn.f64 D, D",
    "neg.f64 D, D",
    "abs.f64 D, D",
    "cvt.rn.f32.s32 F, R",
    "cvt.rn.f32.u32 F, R",
    "cvt.rn.f64.s32 D, R",
    "cvt.rn.f64.u32 D, R",
    "cvt.f64.f32 D, F",
    "cvt.rn.f32.f64 F, D",
    "cvt.rni.s32.f32 R, F",
    "cvt.rzi.s32.f32 R, F",
    "cvt.rmi.s32.f32 R, F",
    "cvt.rpi.s32.f32 R, F",
    "cvta.shared.u64 Q, Q",
    "cvta.to.shared.u64 Q, Q",
    "mov.u32 R, %laneid",
    "mov.u32 R, %tid.x",
    "mov.u32 R, %tid.y",
    "mov.u32 R, %tid.z",
    "mov.u32 R, %ntid.y",
    "mov.u32 R, %ctaid.x",
    "mov.u32 R, %nctaid.x",
    "mov.u32 R, %clock",
};

// A, V and X stand for consecutive addresses in global memory, of 4, 8 and 16 bytes, S and T for such in
// shared memory, B for one address, and W and Y for scattered ones. O is a random offset that fits.
const std::vector<std::string> kAccesses = {
    "ld.global.u32 R, [A+O]",
    "ld.global.f32 F, [A+O]",
    "ld.global.u32 R, [B+O]",
    "ld.global.u64 Q, [B+O]",
    "ld.global.u64 Q, [V+O]",
    "ld.global.f64 D, [V+O]",
    "ld.shared.u32 R, [S+O]",
    "ld.shared.f32 F, [S+O]",
    "ld.shared.u64 Q, [T+O]",
    "ld.global.u32 R, [W+O]",
    "ld.global.s16 R, [B+O]",
    "ld.global.u8 R, [B+O]",
    "ld.global.v2.u32 {R, R}, [V+O]",
    "ld.global.v2.u32 {R, R}, [B+O]",
    "ld.global.v4.f32 {F, F, F, F}, [B+O]",
    "ld.global.v4.f32 {F, F, F, F}, [W+O]",
    "st.global.u32 [A+O], R",
    "st.global.f32 [A+O], F",
    "st.global.u64 [V+O], Q",
    "ld.global.v4.f32 {F, F, F, F}, [X+O]",
    "ld.global.v2.f64 {D, D}, [X+O]",
    "st.global.v2.u32 [V+O], {R, R}",
    "st.global.v4.f32 [X+O], {F, F, F, F}",
    "st.global.v2.u64 [X+O], {Q, Q}",
    "st.global.u32 [B+O], R",
    "st.global.u32 [W+O], R",
    "st.shared.u32 [S+O], R",
    "st.shared.u64 [T+O], Q",
    "st.global.u8 [B+O], R",
    "ld.u32 R, [A+O]",
    "st.u64 [V+O], Q",
    "atom.global.add.u32 R, [A+O], R",
    "red.shared.add.u32 [S+O], R",
    "ld.volatile.global.u32 R, [A+O]",
    "ld.shared.u32 R, [Y+O]",
    "ld.shared.f32 F, [Y+O]",
    "st.shared.u32 [Y+O], R",
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}
  std::string Kernel(bool unusual_accesses);

 private:
  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  std::string Register(const char* name) { return name + std::to_string(Pick(kPerClass)); }
  std::string Fill(const std::string& text);
  std::string Statement();

  std::mt19937_64 random_;
  bool unusual_ = false;
  int labels_ = 0;
};

std::string Generator::Fill(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool alone =
        (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1]))) &&
        (i + 1 == text.size() || !std::isalnum(static_cast<unsigned char>(text[i + 1])));
    if (!alone) {
      out += text[i];
      continue;
    }
    switch (text[i]) {
      case 'R':
        out += Register("%r");
        break;
      case 'Q':
        out += Register("%q");
        break;
      case 'F':
        out += Register("%f");
        break;
      case 'D':
        out += Register("%d");
        break;
      case 'P':
        out += Register("%p");
        break;
      case 'N':
        out += std::to_string(Pick(2) == 0 ? Pick(40) : Pick(0xffffffff));
        break;
      case 'O':
        out += std::to_string(unusual_ && Pick(20) == 0 ? Pick(2 * kScratch) : 16 * Pick(8));
        break;
      case 'A':
      case 'B':
      case 'S':
      case 'T':
      case 'V':
      case 'W':
      case 'X':
      case 'Y':
        out += std::string("%at") + text[i];
        break;
      default:
        out += text[i];
    }
  }
  return out;
}

std::string Generator::Statement() {
  const bool access = Pick(4) == 0;
  std::string text =
      Fill(access ? kAccesses[Pick(kAccesses.size())] : kInstructions[Pick(kInstructions.size())]);
  // The two halves of a vector are different registers.
  if (text.find('{') != std::string::npos && text.find('{') < text.find('[')) {
    for (uint32_t k = 0; k < 4; ++k) {
      for (const char* name : {"%r", "%f", "%d"}) {
        const size_t at = text.find(name, text.find('{'));
        if (at == std::string::npos || at > text.find('}')) continue;
        size_t place = at;
        for (uint32_t j = 0; place != std::string::npos && place < text.find('}'); ++j) {
          text[place + 2] = static_cast<char>('0' + j);
          place = text.find(name, place + 1);
        }
      }
    }
  }
  const uint32_t guard = Pick(8);
  return (guard == 0   ? "@" + Register("%p") + " "
          : guard == 1 ? "@!" + Register("%p") + " "
                       : "") +
         text + ";\n";
}

std::string Generator::Kernel(bool unusual_accesses) {
  unusual_ = unusual_accesses;
  const std::string n = std::to_string(kPerClass);
  std::string text =
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 scratch)\n{\n"
      ".reg .b32 %r<" +
      n + ">; .reg .b64 %q<" + n + ">; .reg .f32 %f<" + n + ">; .reg .f64 %d<" + n +
      ">; .reg .pred %p<" + n +
      ">;\n.reg .b32 %t, %u, %n, %atS, %atT, %atY; .reg .b64 %x, %y, "
      "%atA, %atB, %atV, %atW, %atX; .reg .pred %loop;\n.shared .align 16 .b8 buffer[" +
      std::to_string(kScratch) +
      "];\n"
      "mov.u32 %t, %tid.y; mov.u32 %u, %ntid.x; mul.lo.u32 %t, %t, %u; mov.u32 %u, %tid.x;\n"
      "add.u32 %t, %t, %u; mov.u32 %u, %ctaid.x; mad.lo.u32 %u, %u, " +
      std::to_string(kBlock) + ", %t;\nld.param.u64 %x, [in]; mad.wide.u32 %x, %u, " +
      std::to_string(kThreadBytes) +
      ", %x;\nld.param.u64 %y, [scratch];\n"
      "mad.wide.u32 %atA, %t, 4, %y; mov.u64 %atB, %y; mad.wide.u32 %atV, %t, 8, %y; mad.wide.u32 "
      "%atX, %t, 16, %y;\n"
      "mul.lo.u32 %n, %t, 80; and.b32 %n, %n, 2032; cvt.u64.u32 %atW, %n; add.u64 %atW, %atW, %y;\n"
      "mov.u32 %n, buffer; mad.lo.u32 %atS, %t, 4, %n; mad.lo.u32 %atT, %t, 8, %n;\n"
      "and.b32 %atY, %t, 15; mad.lo.u32 %atY, %atY, 36, %n;\n";
  for (uint32_t i = 0; i < kPerClass; ++i) {
    const std::string k = std::to_string(i);
    text += "ld.global.u32 %r" + k + ", [%x+" + std::to_string(4 * i) + "]; ld.global.f32 %f" + k +
            ", [%x+" + std::to_string(32 + 4 * i) + "]; ld.global.u64 %q" + k + ", [%x+" +
            std::to_string(64 + 8 * i) + "]; ld.global.f64 %d" + k + ", [%x+" +
            std::to_string(128 + 8 * i) + "]; setp.lt.s32 %p" + k + ", %r" + k + ", 7;\n";
  }
  text += "mov.u32 %n, 0;\nLOOP:\n";
  for (uint32_t part = 0; part < 4; ++part) {
    const std::string skip = "SKIP" + std::to_string(labels_++);
    if (part % 2 == 1) text += "@" + Register("%p") + " bra " + skip + ";\n";
    const uint32_t length = 1 + Pick(30);
    for (uint32_t i = 0; i < length; ++i) text += Statement();
    text += skip + ":\n";
  }
  text += "add.u32 %n, %n, 1; setp.lt.u32 %loop, %n, " + std::to_string(1 + Pick(60)) +
          ";\n@%loop bra LOOP;\n"
          "ld.param.u64 %x, [out]; mad.wide.u32 %x, %u, " +
          std::to_string(kThreadBytes) + ", %x;\n";
  for (uint32_t i = 0; i < kPerClass; ++i) {
    const std::string k = std::to_string(i);
    text += "st.global.u32 [%x+" + std::to_string(4 * i) + "], %r" + k + "; st.global.f32 [%x+" +
            std::to_string(32 + 4 * i) + "], %f" + k + "; st.global.u64 [%x+" +
            std::to_string(64 + 8 * i) + "], %q" + k + "; st.global.f64 [%x+" +
            std::to_string(128 + 8 * i) + "], %d" + k + "; selp.u32 %r" + k + ", 1, 0, %p" + k +
            "; st.global.u8 [%x+" + std::to_string(192 + i) + "], %r" + k + ";\n";
  }
  return text + "ret;\n}\n";
}

// Registers at the begin: numbers of all kinds in both halves of their widths.
void FillInputs(uint8_t* in, size_t bytes, uint64_t seed) {
  static constexpr uint32_t kSpecial[] = {
      0,          1,          0xffffffff, 0x80000000, 0x7fffffff, 0x3f800000, 0xbf800000,
      0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7fa00000, 0x7f7fffff, 0x00800000,
      0x007fffff, 0x80000001, 0x7e800001, 0x4f000000, 0xcf000001, 0x7ff00000, 0xfff80000,
      0x7ff00001, 0x000fffff, 0x3ff00000, 31,         32,         33,         64};
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < bytes; i += 4) {
    uint32_t value = static_cast<uint32_t>(random());
    if (random() % 3 == 0) value = kSpecial[random() % std::size(kSpecial)];
    if (random() % 4 == 0) value = 0x3f000000 + static_cast<uint32_t>(random() % 0x2000000);
    std::memcpy(in + i, &value, 4);
  }
}

struct Outcome {
  std::vector<uint8_t> memory;
  std::string fault;
  CostCounters counters;
};

Outcome Run(const std::string& kernel, uint64_t seed, NativeUse native) {
  Memory memory;
  constexpr size_t kBytes = size_t{kBlocks} * kBlock * kThreadBytes;
  uint8_t* const in = memory.New<uint8_t>(kBytes);
  uint8_t* const out = memory.New<uint8_t>(kBytes);
  uint8_t* const scratch = memory.New<uint8_t>(kScratch);
  FillInputs(in, kBytes, seed);
  FillInputs(scratch, kScratch, seed + 1);
  std::memset(out, 0, kBytes);
  LaunchConfig config = Config(kBlocks, kBlock, Params().Add(in).Add(out).Add(scratch));
  config.block = {11, kBlock / 11, 1};
  config.native = native;
  Program program(&memory, kernel);
  const Result result = program.Run("k", config);
  Outcome outcome;
  outcome.memory.assign(out, out + kBytes);
  outcome.memory.insert(outcome.memory.end(), scratch, scratch + kScratch);
  Fault fault = result.fault;
  // Each run has its own memory.
  const uint64_t begin = reinterpret_cast<uint64_t>(scratch);
  if (fault.address + kScratch >= begin && fault.address < begin + 4 * kScratch)
    fault.address -= begin - kScratch;
  outcome.fault = fault.ToString();
  outcome.counters = result.counters;
  return outcome;
}

void Compare(uint64_t seed, bool unusual_accesses) {
  const std::string kernel = Generator(seed).Kernel(unusual_accesses);
  const Outcome want = Run(kernel, seed, NativeUse::kNever);
  const Outcome got = Run(kernel, seed, NativeUse::kAtOnce);
  INFO("seed " << seed << "\n" << kernel);
  REQUIRE(want.fault == got.fault);
  REQUIRE(want.counters.instructions == got.counters.instructions);
  REQUIRE(want.counters.global_bytes_read == got.counters.global_bytes_read);
  REQUIRE(want.counters.global_bytes_written == got.counters.global_bytes_written);
  REQUIRE(want.counters.global_sectors == got.counters.global_sectors);
  const auto [at, other] =
      std::mismatch(want.memory.begin(), want.memory.end(), got.memory.begin());
  INFO("first difference at byte " << (at - want.memory.begin()) % kThreadBytes << " of thread "
                                   << (at - want.memory.begin()) / kThreadBytes);
  REQUIRE(at == want.memory.end());
}

TEST_CASE("Native code leaves the same registers and costs as the handlers") {
  if (!CpuRunsNativeCode()) {
    WARN("not tested: this CPU has no AVX-512");
    return;
  }
  for (uint64_t seed = 1; seed <= 400; ++seed) Compare(seed, false);
}

TEST_CASE("Native code raises the same faults as the handlers") {
  if (!CpuRunsNativeCode()) {
    WARN("not tested: this CPU has no AVX-512");
    return;
  }
  for (uint64_t seed = 1000; seed < 1300; ++seed) Compare(seed, true);
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
