#include <catch2/catch.hpp>
#include <cfenv>
#include <cmath>

#include "tests/server/backends/soft/ptx/arithmetic_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

template <class T>
const char* Suffix() {
  return std::is_same_v<T, float> ? "f32" : "f64";
}

// Computes the operation in a rounding mode of the host's FPU.
template <class T>
T Rounded(int mode, int op, T a, T b, T c) {
  std::fesetround(mode);
  volatile T x = a, y = b, z = c;
  volatile T r = 0;
  switch (op) {
    case 0:
      r = x + y;
      break;
    case 1:
      r = x - y;
      break;
    case 2:
      r = x * y;
      break;
    case 3:
      r = x / y;
      break;
    case 4:
      r = std::fma(x, y, z);
      break;
    case 5:
      r = std::sqrt(x);
      break;
    default:
      r = T(1) / x;
      break;
  }
  std::fesetround(FE_TONEAREST);
  return r;
}

template <class T>
void CheckRounding() {
  const std::pair<const char*, int> modes[] = {
      {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
  const char* ops[] = {"add", "sub", "mul", "div", "fma", "sqrt", "rcp"};
  for (const auto& [suffix, mode] : modes) {
    for (int op = 0; op < 7; ++op) {
      const std::string operands = op < 4 ? "%o, %a, %b;" : op == 4 ? "%o, %a, %b, %c;" : "%o, %a;";
      CheckInstruction<T, T, T, T>(
          std::string(ops[op]) + "." + suffix + "." + Suffix<T>() + " " + operands,
          [mode = mode, op](T a, T b, T c) { return Rounded<T>(mode, op, a, b, c); });
    }
  }
}

TEST_CASE("Arithmetic is correctly rounded in all four modes") {
  CheckRounding<float>();
  CheckRounding<double>();
}

float Flush(float v) {
  return std::fabs(v) < std::numeric_limits<float>::min() ? std::copysign(0.0f, v) : v;
}

// Returns a kernel that multiplies 8 by 4 with 4 by 8 doubles and adds the product to c.
std::string MatrixKernel(const std::string& instruction) {
  return R"(.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {
  .reg .b32 %t; .reg .b64 %x<4>; .reg .f64 %f<5>;
  ld.param.u64 %x1, [a]; ld.param.u64 %x2, [b]; ld.param.u64 %x3, [c];
  mov.u32 %t, %tid.x;
  mad.wide.u32 %x1, %t, 8, %x1; mad.wide.u32 %x2, %t, 8, %x2; mad.wide.u32 %x3, %t, 16, %x3;
  ld.global.f64 %f1, [%x1]; ld.global.f64 %f2, [%x2]; ld.global.v2.f64 {%f3, %f4}, [%x3];
  )" + instruction +
         R"( {%f3, %f4}, {%f1}, {%f2}, {%f3, %f4};
  st.global.v2.f64 [%x3], {%f3, %f4};
})";
}

TEST_CASE("Matrix products of doubles round every addition in all four modes") {
  const std::pair<const char*, int> modes[] = {{"", FE_TONEAREST},
                                               {".rn", FE_TONEAREST},
                                               {".rz", FE_TOWARDZERO},
                                               {".rm", FE_DOWNWARD},
                                               {".rp", FE_UPWARD}};
  for (const auto& [suffix, mode] : modes) {
    const std::string instruction =
        std::string("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64") + suffix;
    INFO(instruction);
    Memory memory;
    Program program(&memory, MatrixKernel(instruction));
    double* a = memory.New<double>(32);  // by rows
    double* b = memory.New<double>(32);  // by columns
    double* c = memory.New<double>(64);
    std::mt19937_64 random(1);
    std::vector<double> want(64);
    for (int i = 0; i < 32; ++i) a[i] = RandomValue<float>(random) / 3.0;
    for (int i = 0; i < 32; ++i) b[i] = RandomValue<float>(random) / 7.0;
    for (int i = 0; i < 64; ++i) {
      want[i] = c[i] = i - 31.3;
      for (int k = 0; k < 4; ++k) {
        if (!std::isfinite(a[i / 8 * 4 + k])) a[i / 8 * 4 + k] = 0.1;
        if (!std::isfinite(b[i % 8 * 4 + k])) b[i % 8 * 4 + k] = -0.7;
        want[i] = Rounded<double>(mode, 4, a[i / 8 * 4 + k], b[i % 8 * 4 + k], want[i]);
      }
    }
    const Result result = program.Run("k", Config(1, 32, Params().Add(a).Add(b).Add(c)));
    REQUIRE(result.fault.ToString() == Fault{}.ToString());
    for (int i = 0; i < 64; ++i) CHECK(SameBits(c[i], want[i]));
  }
  Memory memory;
  const std::string suffix = ".sync.aligned.row.col.m8n8k4.rz.f64.f64.f64.f64";
  CHECK_NOTHROW(Program(&memory, MatrixKernel("wmma.mma" + suffix)));
  CHECK_THROWS(
      Program(&memory, MatrixKernel("wmma.mma.sync.aligned.row.col.m8n8k4.rni.f64.f64.f64.f64")));
}

TEST_CASE("Flushing and saturation act on inputs and results") {
  using F = float;
  CheckInstruction<F, F, F, F>("add.ftz.f32 %o, %a, %b;",
                               [](F a, F b, F) { return Flush(Flush(a) + Flush(b)); });
  CheckInstruction<F, F, F, F>("mul.rn.ftz.f32 %o, %a, %b;",
                               [](F a, F b, F) { return Flush(Flush(a) * Flush(b)); });
  CheckInstruction<F, F, F, F>("fma.rn.ftz.f32 %o, %a, %b, %c;", [](F a, F b, F c) {
    return Flush(std::fma(Flush(a), Flush(b), Flush(c)));
  });
  auto saturate = [](F v) { return v != v ? 0.0f : v <= 0.0f ? 0.0f : v >= 1.0f ? 1.0f : v; };
  CheckInstruction<F, F, F, F>("add.sat.f32 %o, %a, %b;",
                               [&](F a, F b, F) { return saturate(a + b); });
  CheckInstruction<F, F, F, F>("add.rz.sat.f32 %o, %a, %b;", [&](F a, F b, F) {
    return saturate(Rounded<F>(FE_TOWARDZERO, 0, a, b, 0));
  });
  CheckInstruction<F, F, F, F>("fma.rn.sat.f32 %o, %a, %b, %c;",
                               [&](F a, F b, F c) { return saturate(std::fma(a, b, c)); });
  CheckInstruction<uint32_t, uint32_t, uint32_t, F>(
      "slct.u32.f32 %o, %a, %b, %c;",
      [](uint32_t a, uint32_t b, F c) { return c >= 0.0f ? a : b; });
  CheckInstruction<uint32_t, uint32_t, uint32_t, F>(
      "slct.ftz.u32.f32 %o, %a, %b, %c;",
      [](uint32_t a, uint32_t b, F c) { return Flush(c) >= 0.0f ? a : b; });
  auto flush_half = [](uint16_t h) -> uint16_t { return (h & 0x7c00) == 0 ? h & 0x8000 : h; };
  auto abs_half = [&](uint16_t h) -> uint16_t {
    return (h & 0x7fff) > 0x7c00 ? 0x7fff : flush_half(h) & 0x7fff;
  };
  auto neg_half = [&](uint16_t h) -> uint16_t {
    return (h & 0x7fff) > 0x7c00 ? 0x7fff : flush_half(h) ^ 0x8000;
  };
  Check1<uint16_t, uint16_t>("abs.ftz.f16 %o, %a;", abs_half);
  Check1<uint16_t, uint16_t>("neg.ftz.f16 %o, %a;", neg_half);
  Check1<uint32_t, uint32_t>("abs.ftz.f16x2 %o, %a;", [&](uint32_t a) {
    return abs_half(static_cast<uint16_t>(a)) |
           static_cast<uint32_t>(abs_half(static_cast<uint16_t>(a >> 16))) << 16;
  });
  Check1<uint32_t, uint32_t>("neg.ftz.f16x2 %o, %a;", [&](uint32_t a) {
    return neg_half(static_cast<uint16_t>(a)) |
           static_cast<uint32_t>(neg_half(static_cast<uint16_t>(a >> 16))) << 16;
  });
  CheckInstruction<uint32_t, F, F, F>("setp.lt.ftz.f32 %p, %a, %b; selp.u32 %o, 1, 0, %p;",
                                      [](F a, F b, F) { return Flush(a) < Flush(b) ? 1u : 0u; });
}

TEST_CASE("NaN results of f32 arithmetic are the hardware's") {
  CheckInstruction<uint32_t, float, float, float>(
      "add.f32 %o, %a, %b;", [](float a, float b, float) {
        const float sum = a + b;
        return sum != sum ? 0x7fffffffu : std::bit_cast<uint32_t>(sum);
      });
}

template <class T>
T MinMax(bool max, T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return (std::signbit(a) != max) ? a : b;
  return (a > b) == max ? a : b;
}

TEST_CASE("The least or greatest magnitude gets the product's sign, and is no number if asked") {
  for (const bool max : {false, true}) {
    for (const bool nan : {false, true}) {
      const std::string name = std::string(max ? "max" : "min") + (nan ? ".NaN" : "");
      CheckInstruction<uint32_t, float, float, float>(
          name + ".xorsign.abs.f32 %o, %a, %b;", [max, nan](float a, float b, float) {
            const bool no_number = nan ? std::isunordered(a, b) : a != a && b != b;
            if (no_number) return 0x7fffffffu;
            const bool negative = std::signbit(a) != std::signbit(b);
            const float magnitude = MinMax<float>(max, std::fabs(a), std::fabs(b));
            return std::bit_cast<uint32_t>(std::copysign(magnitude, negative ? -1.0f : 1.0f));
          });
    }
  }
}

template <class T>
void CheckSimple() {
  const std::string s = Suffix<T>();
  CheckInstruction<T, T, T, T>("min." + s + " %o, %a, %b;",
                               [](T a, T b, T) { return MinMax<T>(false, a, b); });
  CheckInstruction<T, T, T, T>("max." + s + " %o, %a, %b;",
                               [](T a, T b, T) { return MinMax<T>(true, a, b); });
  CheckInstruction<T, T, T, T>("abs." + s + " %o, %a;", [](T a, T, T) { return std::fabs(a); });
  CheckInstruction<T, T, T, T>("neg." + s + " %o, %a;", [](T a, T, T) { return -a; });
  CheckInstruction<T, T, T, T>("copysign." + s + " %o, %a, %b;",
                               [](T a, T b, T) { return std::copysign(b, a); });
  struct Comparison {
    const char* name;
    bool (*holds)(T, T);
  };
  const Comparison comparisons[] = {
      {"eq", [](T a, T b) { return a == b; }},
      {"ne", [](T a, T b) { return !std::isunordered(a, b) && a != b; }},
      {"lt", [](T a, T b) { return a < b; }},
      {"ge", [](T a, T b) { return a >= b; }},
      {"equ", [](T a, T b) { return std::isunordered(a, b) || a == b; }},
      {"neu", [](T a, T b) { return std::isunordered(a, b) || a != b; }},
      {"ltu", [](T a, T b) { return std::isunordered(a, b) || a < b; }},
      {"leu", [](T a, T b) { return std::isunordered(a, b) || a <= b; }},
      {"gtu", [](T a, T b) { return std::isunordered(a, b) || a > b; }},
      {"geu", [](T a, T b) { return std::isunordered(a, b) || a >= b; }},
      {"num", [](T a, T b) { return !std::isunordered(a, b); }},
      {"nan", [](T a, T b) { return std::isunordered(a, b); }}};
  for (const Comparison& comparison : comparisons) {
    CheckInstruction<uint32_t, T, T, T>(
        std::string("setp.") + comparison.name + "." + s + " %p, %a, %b; selp.u32 %o, 1, 0, %p;",
        [&](T a, T b, T) { return comparison.holds(a, b) ? 1u : 0u; });
  }
  const std::pair<const char*, bool (*)(T)> kinds[] = {
      {"finite", [](T a) { return std::isfinite(a); }},
      {"infinite", [](T a) { return std::isinf(a); }},
      {"number", [](T a) { return !std::isnan(a); }},
      {"notanumber", [](T a) { return std::isnan(a); }},
      {"normal", [](T a) { return std::isnormal(a) || a == 0; }},
      {"subnormal", [](T a) { return std::fpclassify(a) == FP_SUBNORMAL; }}};
  for (const auto& [name, holds] : kinds) {
    CheckInstruction<uint32_t, T, T, T>(
        std::string("testp.") + name + "." + s + " %p, %a; selp.u32 %o, 1, 0, %p;",
        [holds = holds](T a, T, T) { return holds(a) ? 1u : 0u; });
  }
}

TEST_CASE("NaNs from sign operations and conversions are the hardware's") {
  // The bits that an H200 returns.
  Check1<uint32_t, float>("abs.f32 %o, %a;", [](float a) {
    return a != a ? 0x7fffffffu : std::bit_cast<uint32_t>(std::fabs(a));
  });
  Check1<uint32_t, float>("neg.f32 %o, %a;", [](float a) {
    return a != a ? 0x7fffffffu : std::bit_cast<uint32_t>(-a);
  });
  Check1<uint64_t, double>("neg.f64 %o, %a;",
                           [](double a) { return std::bit_cast<uint64_t>(a != a ? a + a : -a); });
  Check1<uint32_t, double>("cvt.rn.f32.f64 %o, %a;",
                           [](double a) { return std::bit_cast<uint32_t>(static_cast<float>(a)); });
  Check1<uint16_t, uint16_t>(
      "neg.f16 %o, %a;", [](uint16_t a) { return (a & 0x7fff) > 0x7c00 ? 0x7fff : a ^ 0x8000; });
}

TEST_CASE("Minimum, maximum, signs and comparisons follow IEEE with the order of zeros") {
  CheckSimple<float>();
  CheckSimple<double>();
}

template <class D, class S>
D ToInteger(S v, S (*round)(S)) {
  if (std::isnan(v)) {
    return sizeof(S) < 8 && sizeof(D) < 8
               ? 0
               : static_cast<D>(std::make_unsigned_t<D>{1} << (8 * sizeof(D) - 1));
  }
  const long double r = round(v);
  if (r <= static_cast<long double>(std::numeric_limits<D>::min()))
    return std::numeric_limits<D>::min();
  if (r >= static_cast<long double>(std::numeric_limits<D>::max()))
    return std::numeric_limits<D>::max();
  return static_cast<D>(r);
}

template <class D, class S>
void CheckToInteger(const char* d, const char* s) {
  const std::pair<const char*, S (*)(S)> modes[] = {{"rni", [](S v) { return std::nearbyint(v); }},
                                                    {"rzi", [](S v) { return std::trunc(v); }},
                                                    {"rmi", [](S v) { return std::floor(v); }},
                                                    {"rpi", [](S v) { return std::ceil(v); }}};
  for (const auto& [mode, round] : modes) {
    Check1<D, S>(std::string("cvt.") + mode + "." + d + "." + s + " %o, %a;",
                 [round = round](S a) { return ToInteger<D, S>(a, round); });
  }
}

template <class D, class S>
void CheckFromInteger(const char* d, const char* s) {
  const std::pair<const char*, int> modes[] = {
      {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
  for (const auto& [name, mode] : modes) {
    Check1<D, S>(std::string("cvt.") + name + "." + d + "." + s + " %o, %a;", [mode = mode](S a) {
      // clang's conversion of uint64_t gives -0 with FE_DOWNWARD.
      if (std::is_integral_v<S> && a == 0) return D{0};
      std::fesetround(mode);
      volatile S in = a;
      volatile D out = static_cast<D>(in);
      std::fesetround(FE_TONEAREST);
      return D{out};
    });
  }
}

TEST_CASE("Conversions between floats and integers round and clamp") {
  CheckToInteger<int32_t, float>("s32", "f32");
  CheckToInteger<uint32_t, float>("u32", "f32");
  CheckToInteger<int64_t, float>("s64", "f32");
  CheckToInteger<uint64_t, float>("u64", "f32");
  CheckToInteger<int32_t, double>("s32", "f64");
  CheckToInteger<uint32_t, double>("u32", "f64");
  CheckToInteger<int64_t, double>("s64", "f64");
  CheckToInteger<uint64_t, double>("u64", "f64");
  CheckToInteger<int16_t, float>("s16", "f32");
  CheckFromInteger<float, int32_t>("f32", "s32");
  CheckFromInteger<float, uint32_t>("f32", "u32");
  CheckFromInteger<float, int64_t>("f32", "s64");
  CheckFromInteger<float, uint64_t>("f32", "u64");
  CheckFromInteger<double, int64_t>("f64", "s64");
  CheckFromInteger<double, uint64_t>("f64", "u64");
  Check1<double, int32_t>("cvt.rn.f64.s32 %o, %a;",
                          [](int32_t a) { return static_cast<double>(a); });
  CheckFromInteger<float, double>("f32", "f64");
  Check1<double, float>("cvt.f64.f32 %o, %a;", [](float a) { return static_cast<double>(a); });
  Check1<float, float>("cvt.rni.f32.f32 %o, %a;", [](float a) { return std::nearbyint(a); });
  Check1<double, double>("cvt.rpi.f64.f64 %o, %a;", [](double a) { return std::ceil(a); });
}

TEST_CASE("Half precision rounds as a search over all values does") {
  // The values of all non-negative halves, in order.
  std::vector<double> values;
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const int exponent = static_cast<int>(h >> 10);
    const double mantissa = h & 0x3ff;
    values.push_back(exponent == 0 ? std::ldexp(mantissa, -24)
                                   : std::ldexp(mantissa + 1024, exponent - 25));
  }
  auto nearest = [&](double v) -> uint16_t {
    if (v != v) return 0x7fff;
    const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
    v = std::fabs(v);
    if (v >= 65520) return sign | 0x7c00;
    const size_t above =
        static_cast<size_t>(std::lower_bound(values.begin(), values.end(), v) - values.begin());
    if (above == values.size()) return sign | 0x7bff;
    if (values[above] == v || above == 0) return static_cast<uint16_t>(sign | above);
    const double low = v - values[above - 1], high = values[above] - v;
    const size_t chosen = low < high       ? above - 1
                          : high < low     ? above
                          : above % 2 == 0 ? above
                                           : above - 1;
    return static_cast<uint16_t>(sign | chosen);
  };
  auto widen = [&](uint16_t h) -> double {
    const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
    h &= 0x7fff;
    if (h > 0x7c00) return std::numeric_limits<double>::quiet_NaN();
    return sign * (h == 0x7c00 ? HUGE_VAL : values[h]);
  };
  Check1<uint16_t, float>("cvt.rn.f16.f32 %o, %a;", [&](float a) { return nearest(a); });
  Check1<float, uint16_t>("cvt.f32.f16 %o, %a;",
                          [&](uint16_t a) { return static_cast<float>(widen(a)); });
  Check2<uint16_t, uint16_t, uint16_t>(
      "add.f16 %o, %a, %b;", [&](uint16_t a, uint16_t b) { return nearest(widen(a) + widen(b)); });
  Check2<uint16_t, uint16_t, uint16_t>(
      "mul.f16 %o, %a, %b;", [&](uint16_t a, uint16_t b) { return nearest(widen(a) * widen(b)); });
  CheckInstruction<uint16_t, uint16_t, uint16_t, uint16_t>(
      "fma.rn.f16 %o, %a, %b, %c;", [&](uint16_t a, uint16_t b, uint16_t c) {
        // The x87 format holds the exact sum, except for the widest spans, which round to the same.
        return nearest(
            static_cast<double>(static_cast<long double>(widen(a)) * widen(b) + widen(c)));
      });
  Check2<uint32_t, uint32_t, uint32_t>("add.f16x2 %o, %a, %b;", [&](uint32_t a, uint32_t b) {
    const uint16_t lo = nearest(widen(static_cast<uint16_t>(a)) + widen(static_cast<uint16_t>(b)));
    const uint16_t hi =
        nearest(widen(static_cast<uint16_t>(a >> 16)) + widen(static_cast<uint16_t>(b >> 16)));
    return lo | static_cast<uint32_t>(hi) << 16;
  });
  Check2<uint16_t, uint16_t, uint16_t>(
      "sub.f16 %o, %a, %b;", [&](uint16_t a, uint16_t b) { return nearest(widen(a) - widen(b)); });
  CheckInstruction<uint32_t, uint32_t, uint32_t, uint32_t>(
      "fma.rn.f16x2 %o, %a, %b, %c;", [&](uint32_t a, uint32_t b, uint32_t c) {
        const auto part = [&](int shift) -> uint32_t {
          const auto half = [&](uint32_t v) { return widen(static_cast<uint16_t>(v >> shift)); };
          return nearest(
              static_cast<double>(static_cast<long double>(half(a)) * half(b) + half(c)));
        };
        return part(0) | part(16) << 16;
      });
  Check2<uint32_t, float, float>("cvt.rn.f16x2.f32 %o, %a, %b;", [&](float a, float b) {
    return static_cast<uint32_t>(nearest(a)) << 16 | nearest(b);
  });
}

TEST_CASE("bf16 conversions round to nearest even") {
  Check1<uint16_t, float>("cvt.rn.bf16.f32 %o, %a;", [](float a) -> uint16_t {
    if (a != a) return 0x7fff;
    const uint32_t bits = std::bit_cast<uint32_t>(a);
    const uint32_t rest = bits & 0xffff;
    uint32_t high = bits >> 16;
    if (rest > 0x8000 || (rest == 0x8000 && (high & 1) != 0)) ++high;
    return static_cast<uint16_t>(high);
  });
  Check1<uint16_t, float>("cvt.rz.bf16.f32 %o, %a;", [](float a) -> uint16_t {
    return a != a ? 0x7fff : static_cast<uint16_t>(std::bit_cast<uint32_t>(a) >> 16);
  });
}

// Rounds to bf16, from a type that holds the exact value.
uint16_t NearestBF16(long double v) {
  if (v != v) return 0x7fff;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  v = std::fabs(v);
  if (v >= 0x1.ffp127L) return sign | 0x7f80;
  int exponent = 0;
  if (v != 0) std::frexp(v, &exponent);
  const long double last = std::ldexp(1.0L, std::max(exponent - 8, -133));
  const float rounded = static_cast<float>(std::nearbyint(v / last) * last);
  return static_cast<uint16_t>(sign | std::bit_cast<uint32_t>(rounded) >> 16);
}

// Rounds an integer to bf16 in the mode of a modifier.
uint16_t IntegerToBF16(bool negative, uint64_t magnitude, std::string_view mode) {
  if (magnitude == 0) return 0;
  const int exponent = 63 - std::countl_zero(magnitude);
  uint64_t code = magnitude << std::max(7 - exponent, 0);
  if (exponent > 7) {
    const int shift = exponent - 7;
    const uint64_t rest = magnitude & ((uint64_t{1} << shift) - 1),
                   half = uint64_t{1} << (shift - 1);
    code = magnitude >> shift;
    if (mode == "rn" ? rest > half || (rest == half && code % 2 != 0)
                     : rest != 0 && mode == (negative ? "rm" : "rp"))
      ++code;
  }
  // Adding the code carries from its eighth bit into the exponent.
  const uint64_t bits = (static_cast<uint64_t>(exponent + 126) << 7) + code;
  return static_cast<uint16_t>(bits | (negative ? 0x8000 : 0));
}

TEST_CASE("Integers of 64 bits round to bf16 once") {
  for (const std::string mode : {"rn", "rz", "rm", "rp"}) {
    const auto from_unsigned = [&](uint64_t a) { return IntegerToBF16(false, a, mode); };
    const auto from_signed = [&](int64_t a) {
      return IntegerToBF16(a < 0, a < 0 ? -static_cast<uint64_t>(a) : static_cast<uint64_t>(a),
                           mode);
    };
    Check1<uint16_t, uint64_t>("cvt." + mode + ".bf16.u64 %o, %a;", from_unsigned);
    Check1<uint16_t, int64_t>("cvt." + mode + ".bf16.s64 %o, %a;", from_signed);
    // Random values are hardly ever near a tie. These are: nine bits, and a small number.
    Check2<uint16_t, uint64_t, int32_t>(
        "cvt.s64.s32 %x9, %b; shl.b64 %x8, %a, 55; add.s64 %x8, %x8, %x9; cvt." + mode +
            ".bf16.u64 %o, %x8;",
        [&](uint64_t a, int32_t b) {
          return from_unsigned((a << 55) + static_cast<uint64_t>(int64_t{b}));
        });
  }
}

TEST_CASE("Conversions to tf32 round to ten bits of mantissa") {
  const auto bits = [](float a) { return std::bit_cast<uint32_t>(a); };
  // The mantissa's thirteen last bits become zero, after `added`. Infinity and NaN stay.
  const auto cut = [&](float a, uint32_t added) -> uint32_t {
    if (std::isnan(a)) return 0x7fffffff;
    return (bits(a) + (std::isfinite(a) ? added : 0)) & ~0x1fffu;
  };
  const auto nearest = [&](float a) { return cut(a, 0xfff + (bits(a) >> 13 & 1)); };
  Check1<uint32_t, float>("cvt.rna.tf32.f32 %o, %a;", [&](float a) { return cut(a, 0x1000); });
  Check1<uint32_t, float>("cvt.rn.tf32.f32 %o, %a;", nearest);
  Check1<uint32_t, float>("cvt.rz.tf32.f32 %o, %a;", [&](float a) { return cut(a, 0); });
  Check1<uint32_t, float>("cvt.rn.relu.tf32.f32 %o, %a;", [&](float a) -> uint32_t {
    return std::signbit(a) && !std::isnan(a) ? 0 : nearest(a);
  });
  Check1<uint32_t, float>("cvt.rna.satfinite.tf32.f32 %o, %a;", [&](float a) -> uint32_t {
    const uint32_t rounded = cut(a, 0x1000);
    const uint32_t infinity = 0x7f800000, sign = rounded & 0x80000000;
    return (rounded & 0x7fffffff) == infinity ? sign | 0x7f7fe000 : rounded;
  });
}

TEST_CASE("bf16 arithmetic rounds once, to nearest even") {
  const auto widen = [](uint16_t v) -> long double {
    return std::bit_cast<float>(static_cast<uint32_t>(v) << 16);
  };
  Check2<uint16_t, uint16_t, uint16_t>("add.bf16 %o, %a, %b;", [&](uint16_t a, uint16_t b) {
    return NearestBF16(static_cast<float>(widen(a) + widen(b)));
  });
  Check2<uint16_t, uint16_t, uint16_t>("sub.bf16 %o, %a, %b;", [&](uint16_t a, uint16_t b) {
    return NearestBF16(static_cast<float>(widen(a) - widen(b)));
  });
  Check2<uint16_t, uint16_t, uint16_t>("mul.bf16 %o, %a, %b;", [&](uint16_t a, uint16_t b) {
    return NearestBF16(widen(a) * widen(b));
  });
  CheckInstruction<uint16_t, uint16_t, uint16_t, uint16_t>(
      "fma.rn.bf16 %o, %a, %b, %c;", [&](uint16_t a, uint16_t b, uint16_t c) {
        const long double product = widen(a) * widen(b);  // exact
        const long double sum = product + widen(c);
        // The x87 format does not hold the widest sums exactly. A tie that it makes is none.
        const long double t = sum - product;
        const long double error = (product - (sum - t)) + (widen(c) - t);
        const bool finite = sum - sum == 0;
        return NearestBF16(
            finite && error != 0 ? std::nextafter(sum, error > 0 ? HUGE_VALL : -HUGE_VALL) : sum);
      });
}

TEST_CASE("An approximate quotient is zero, or no number, where the divisor is above 2^126") {
  for (const bool ftz : {false, true}) {
    const auto flush = [ftz](float v) { return ftz ? Flush(v) : v; };
    const auto reference = [&](float a, float b, float) {
      const float x = flush(a), y = flush(b);
      return flush(std::fabs(y) > 0x1p126f ? x * std::copysign(0.0f, y) : x / y);
    };
    CheckInstruction<float, float, float, float>(
        ftz ? "div.approx.ftz.f32 %o, %a, %b;" : "div.approx.f32 %o, %a, %b;", reference);
  }
  const auto divisor = [](const char* name) {
    return std::string("{ .reg .f32 %l; mov.b32 %l, ") + name + "; div.approx.f32 %o, %a, %l; }";
  };
  Check1<float, float>(divisor("0x7e800000"), [](float a) { return a / 0x1p126f; });
  Check1<float, float>(divisor("0x7e800001"), [](float a) { return a * 0.0f; });
  Check1<float, float>(divisor("0xfe800001"), [](float a) { return a * -0.0f; });
  CheckInstruction<float, float, float, float>("div.full.f32 %o, %a, %b;",
                                               [](float a, float b, float) { return a / b; });
}

uint64_t Bits(double v) { return std::bit_cast<uint64_t>(v); }

TEST_CASE("Approximations in half a double leave the other half zero and know special values") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kMax = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  const double nan = std::bit_cast<double>(uint64_t{0x7ff0000000000001});
  struct Example {
    double input;
    double rcp, rsqrt;
  };
  const double none = std::bit_cast<double>(uint64_t{0x7fffffff00000000});
  const Example examples[] = {{kInf, 0.0, 0.0},
                              {-kInf, -0.0, none},
                              {0.0, kInf, kInf},
                              {-0.0, -kInf, -kInf},
                              {kLeast, kInf, kInf},
                              {-kLeast, -kInf, -kInf},
                              {nan, none, none},
                              {-1.0, -1.0, none},
                              {4.0, 0.25, 0.5 - 0x1p-22},
                              // A reciprocal that would be subnormal becomes zero.
                              {kMax, 0.0, 0x1p-512 - 0x1p-533}};
  Memory memory;
  double* in = memory.New<double>(32);
  double* rcp = memory.New<double>(32);
  double* rsqrt = memory.New<double>(32);
  const size_t count = std::size(examples);
  for (size_t i = 0; i < count; ++i) in[i] = examples[i].input;
  RunInstruction(InstructionKernel("rcp.approx.ftz.f64 %o, %a;", 8, 8, 8, 8), memory, 1, 32,
                 Params().Add(in).Add(in).Add(in).Add(rcp));
  RunInstruction(InstructionKernel("rsqrt.approx.ftz.f64 %o, %a;", 8, 8, 8, 8), memory, 1, 32,
                 Params().Add(in).Add(in).Add(in).Add(rsqrt));
  for (size_t i = 0; i < count; ++i) {
    INFO(examples[i].input);
    CHECK(Bits(rcp[i]) == Bits(examples[i].rcp));
    CHECK(Bits(rsqrt[i]) == Bits(examples[i].rsqrt));
  }

  std::mt19937_64 random(3);
  for (int i = 0; i < 32; ++i)
    in[i] = std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52,
                       static_cast<int>(random() % 600) - 300);
  RunInstruction(InstructionKernel("rcp.approx.ftz.f64 %o, %a;", 8, 8, 8, 8), memory, 1, 32,
                 Params().Add(in).Add(in).Add(in).Add(rcp));
  RunInstruction(InstructionKernel("rsqrt.approx.ftz.f64 %o, %a;", 8, 8, 8, 8), memory, 1, 32,
                 Params().Add(in).Add(in).Add(in).Add(rsqrt));
  for (int i = 0; i < 32; ++i) {
    INFO(in[i]);
    CHECK(static_cast<uint32_t>(Bits(rcp[i])) == 0);
    CHECK(static_cast<uint32_t>(Bits(rsqrt[i])) == 0);
    CHECK(std::fabs(rcp[i] * in[i] - 1) < 0x1p-18);
    CHECK(rsqrt[i] < 1 / std::sqrt(in[i]));
    CHECK(rsqrt[i] * std::sqrt(in[i]) > 1 - 0x1p-18);
  }
}

TEST_CASE("The root of a sum of squares below 2^1024 is finite") {
  // As nvcc scales, approximates and refines hypot().
  const std::string body =
      "{ .reg .f64 %d<9>;\n"
      "mul.f64 %d0, %a, 0d0010000000000000; fma.rn.f64 %d1, %d0, %d0, 0d0000000000000000;\n"
      "rsqrt.approx.ftz.f64 %d2, %d1; mul.rn.f64 %d3, %d2, %d2; neg.f64 %d3, %d3;\n"
      "fma.rn.f64 %d4, %d1, %d3, 0d3FF0000000000000;\n"
      "fma.rn.f64 %d5, 0d3FD8000000000000, %d4, 0d3FE0000000000000;\n"
      "mul.rn.f64 %d6, %d4, %d2; fma.rn.f64 %d7, %d5, %d6, %d2;\n"
      "mul.f64 %d8, %d1, %d7; mul.f64 %o, %d8, 0d7FD0000000000000; }";
  Memory memory;
  double* in = memory.New<double>(32);
  double* out = memory.New<double>(32);
  in[0] = std::numeric_limits<double>::max();
  RunInstruction(InstructionKernel(body, 8, 8, 8, 8), memory, 1, 32,
                 Params().Add(in).Add(in).Add(in).Add(out));
  CHECK(out[0] <= in[0]);
  CHECK(out[0] >= std::nextafter(in[0], 0.0));
}

TEST_CASE("Approximations are accurate to a few units in the last place") {
  struct Function {
    const char* body;
    double (*exact)(double);
    float low, high;
  };
  const Function functions[] = {
      {"sin.approx.f32 %o, %a;", [](double x) { return std::sin(x); }, -3, 3},
      {"cos.approx.f32 %o, %a;", [](double x) { return std::cos(x); }, -3, 3},
      {"ex2.approx.f32 %o, %a;", [](double x) { return std::exp2(x); }, -20, 20},
      {"lg2.approx.f32 %o, %a;", [](double x) { return std::log2(x); }, 0.01f, 1000},
      {"rsqrt.approx.f32 %o, %a;", [](double x) { return 1 / std::sqrt(x); }, 0.01f, 1000},
      {"rcp.approx.ftz.f32 %o, %a;", [](double x) { return 1 / x; }, 0.01f, 1000},
      {"sqrt.approx.f32 %o, %a;", [](double x) { return std::sqrt(x); }, 0.01f, 1000},
      {"tanh.approx.f32 %o, %a;", [](double x) { return std::tanh(x); }, -4, 4}};
  for (const Function& f : functions) {
    INFO(f.body);
    Memory memory;
    Program program(&memory, InstructionKernel(f.body, 4, 4, 4, 4));
    float* a = memory.New<float>(1024);
    float* o = memory.New<float>(1024);
    for (int i = 0; i < 1024; ++i)
      a[i] = f.low + (f.high - f.low) * static_cast<float>(i) / 1023.0f;
    const Result result = program.Run("k", Config(4, 256, Params().Add(a).Add(a).Add(a).Add(o)));
    REQUIRE(result.fault.kind == FaultKind::kNone);
    for (int i = 0; i < 1024; ++i)
      CHECK(std::fabs(o[i] - f.exact(a[i])) <= 4e-7 * std::max(1.0, std::fabs(f.exact(a[i]))));
  }
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
