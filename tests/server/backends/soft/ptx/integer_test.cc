#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/server/backends/soft/ptx/arithmetic_harness.h"

namespace detshare::soft::ptx::testing {
namespace {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using u128 = unsigned __int128;
using s128 = __int128;

template <class T>
const char* IntegerSuffix() {
  if (std::is_same_v<T, u16>) return "u16";
  if (std::is_same_v<T, u32>) return "u32";
  if (std::is_same_v<T, u64>) return "u64";
  if (std::is_same_v<T, s16>) return "s16";
  if (std::is_same_v<T, s32>) return "s32";
  return "s64";
}
template <class T>
std::string I(std::string text) {
  const size_t at = text.find('$');
  return text.replace(at, 1, IntegerSuffix<T>());
}

template <class T>
T Div(T a, T b) {
  if (b == 0) return static_cast<T>(~u64{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(-static_cast<u64>(a));
  return static_cast<T>(a / b);
}
template <class T>
T Rem(T a, T b) {
  if (b == 0) return static_cast<T>(~u64{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

template <class T>
void CheckWidth() {
  Check2<T, T, T>(I<T>("add.$ %o, %a, %b;"),
                  [](T a, T b) { return static_cast<u64>(a) + static_cast<u64>(b); });
  Check2<T, T, T>(I<T>("sub.$ %o, %a, %b;"),
                  [](T a, T b) { return static_cast<u64>(a) - static_cast<u64>(b); });
  Check2<T, T, T>(I<T>("mul.lo.$ %o, %a, %b;"),
                  [](T a, T b) { return static_cast<u64>(a) * static_cast<u64>(b); });
  Check2<T, T, T>(I<T>("mul.hi.$ %o, %a, %b;"), [](T a, T b) {
    if (std::is_signed_v<T>)
      return static_cast<T>((static_cast<s128>(a) * static_cast<s128>(b)) >> (8 * sizeof(T)));
    return static_cast<T>((static_cast<u128>(a) * static_cast<u128>(b)) >> (8 * sizeof(T)));
  });
  CheckInstruction<T, T, T, T>(I<T>("mad.lo.$ %o, %a, %b, %c;"), [](T a, T b, T c) {
    return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c));
  });
  CheckInstruction<T, T, T, T>(I<T>("mad.hi.$ %o, %a, %b, %c;"), [](T a, T b, T c) {
    using Wide = std::conditional_t<std::is_signed_v<T>, s128, u128>;
    const Wide product = static_cast<Wide>(a) * static_cast<Wide>(b);
    return static_cast<T>(static_cast<u64>(product >> (8 * sizeof(T))) + static_cast<u64>(c));
  });
  CheckInstruction<T, T, T, T>(I<T>("sad.$ %o, %a, %b, %c;"), [](T a, T b, T c) {
    const u64 difference = a < b ? static_cast<u64>(b) - static_cast<u64>(a)
                                 : static_cast<u64>(a) - static_cast<u64>(b);
    return static_cast<T>(static_cast<u64>(c) + difference);
  });
  Check2<T, T, T>(I<T>("div.$ %o, %a, %b;"), Div<T>);
  Check2<T, T, T>(I<T>("rem.$ %o, %a, %b;"), Rem<T>);
  Check2<T, T, T>(I<T>("min.$ %o, %a, %b;"), [](T a, T b) { return std::min(a, b); });
  Check2<T, T, T>(I<T>("max.$ %o, %a, %b;"), [](T a, T b) { return std::max(a, b); });
  Check2<T, T, u32>(I<T>("shr.$ %o, %a, %b;"), [](T a, u32 n) {
    const u32 bits = 8 * sizeof(T);
    if (std::is_signed_v<T>) return static_cast<T>(a >> std::min(n, bits - 1));
    return n >= bits ? T{0} : static_cast<T>(a >> n);
  });
  const std::pair<const char*, bool (*)(T, T)> compares[] = {
      {"eq", [](T a, T b) { return a == b; }}, {"ne", [](T a, T b) { return a != b; }},
      {"lt", [](T a, T b) { return a < b; }},  {"le", [](T a, T b) { return a <= b; }},
      {"gt", [](T a, T b) { return a > b; }},  {"ge", [](T a, T b) { return a >= b; }}};
  for (const auto& [name, holds] : compares) {
    const std::string compare = std::string("setp.") + name + "." + IntegerSuffix<T>() +
                                " %p, %a, %b; selp.u32 %o, 1, 0, %p;";
    Check2<u32, T, T>(compare, [holds = holds](T a, T b) { return holds(a, b) ? 1 : 0; });
  }
}

template <class T>
void CheckSigned() {
  Check1<T, T>(I<T>("abs.$ %o, %a;"),
               [](T a) { return a < 0 ? static_cast<T>(-static_cast<u64>(a)) : a; });
  Check1<T, T>(I<T>("neg.$ %o, %a;"), [](T a) { return static_cast<T>(-static_cast<u64>(a)); });
}

TEST_CASE("Integer arithmetic of every width agrees with the host") {
  CheckWidth<u16>();
  CheckWidth<s16>();
  CheckWidth<u32>();
  CheckWidth<s32>();
  CheckWidth<u64>();
  CheckWidth<s64>();
  CheckSigned<s16>();
  CheckSigned<s32>();
  CheckSigned<s64>();
}

TEST_CASE("Wide products and products of 24 bits agree with the host") {
  Check2<u32, u16, u16>("mul.wide.u16 %o, %a, %b;", [](u16 a, u16 b) { return u32{a} * b; });
  Check2<s32, s16, s16>("mul.wide.s16 %o, %a, %b;", [](s16 a, s16 b) { return s32{a} * b; });
  Check2<u64, u32, u32>("mul.wide.u32 %o, %a, %b;", [](u32 a, u32 b) { return u64{a} * b; });
  Check2<s64, s32, s32>("mul.wide.s32 %o, %a, %b;", [](s32 a, s32 b) { return s64{a} * b; });
  CheckInstruction<u64, u32, u32, u64>("mad.wide.u32 %o, %a, %b, %c;",
                                       [](u32 a, u32 b, u64 c) { return u64{a} * b + c; });
  CheckInstruction<s64, s32, s32, s64>("mad.wide.s32 %o, %a, %b, %c;", [](s32 a, s32 b, s64 c) {
    return static_cast<s64>(static_cast<u64>(s64{a} * b) + static_cast<u64>(c));
  });
  auto low24 = [](u32 a) { return s64{static_cast<s32>(a << 8) >> 8}; };
  Check2<u32, u32, u32>("mul24.lo.u32 %o, %a, %b;",
                        [](u32 a, u32 b) { return u64{a & 0xffffff} * (b & 0xffffff); });
  Check2<u32, u32, u32>("mul24.hi.u32 %o, %a, %b;",
                        [](u32 a, u32 b) { return (u64{a & 0xffffff} * (b & 0xffffff)) >> 16; });
  Check2<u32, u32, u32>("mul24.lo.s32 %o, %a, %b;",
                        [&](u32 a, u32 b) { return low24(a) * low24(b); });
  CheckInstruction<u32, u32, u32, u32>("mad24.lo.u32 %o, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    return static_cast<u32>(u64{a & 0xffffff} * (b & 0xffffff) + c);
  });
  auto saturate = [](s64 v) { return static_cast<s32>(std::clamp<s64>(v, INT32_MIN, INT32_MAX)); };
  Check2<s32, s32, s32>("add.sat.s32 %o, %a, %b;",
                        [&](s32 a, s32 b) { return saturate(s64{a} + b); });
  Check2<s32, s32, s32>("sub.sat.s32 %o, %a, %b;",
                        [&](s32 a, s32 b) { return saturate(s64{a} - b); });
  CheckInstruction<s32, s32, s32, s32>("mad.hi.sat.s32 %o, %a, %b, %c;", [&](s32 a, s32 b, s32 c) {
    return saturate(((s64{a} * b) >> 32) + c);
  });
}

TEST_CASE("Carry chains add, subtract and multiply 128-bit numbers") {
  // (a:b) + (b:c), (a:b) - (b:c): the upper halves.
  CheckInstruction<u64, u64, u64, u64>(
      "add.cc.u64 %x8, %b, %c; addc.u64 %o, %a, %b;", [](u64 a, u64 b, u64 c) {
        return static_cast<u64>(
            ((static_cast<u128>(a) << 64 | b) + (static_cast<u128>(b) << 64 | c)) >> 64);
      });
  CheckInstruction<u64, u64, u64, u64>(
      "sub.cc.u64 %x8, %b, %c; subc.u64 %o, %a, %b;", [](u64 a, u64 b, u64 c) {
        return static_cast<u64>(
            ((static_cast<u128>(a) << 64 | b) - (static_cast<u128>(b) << 64 | c)) >> 64);
      });
  CheckInstruction<u32, u32, u32, u32>(
      "sub.cc.u32 %t3, %a, %b; subc.cc.u32 %t3, %b, %c; subc.u32 %o, %a, %c;",
      [](u32 a, u32 b, u32 c) { return a - c - (b < u64{c} + (a < b) ? 1 : 0); });
  // The flag says that nothing was borrowed, also to additions, and additions set it so for subtractions.
  CheckInstruction<u32, u32, u32, u32>("sub.cc.u32 %t3, %a, %b; addc.u32 %o, %c, 0;",
                                       [](u32 a, u32 b, u32 c) { return c + (a >= b ? 1 : 0); });
  CheckInstruction<u64, u64, u64, u64>(
      "sub.cc.u64 %x8, %a, %b; subc.cc.u64 %x8, %b, %c; addc.u64 %o, 0, 0;",
      [](u64 a, u64 b, u64 c) { return b >= static_cast<u128>(c) + (a < b) ? 1 : 0; });
  CheckInstruction<u32, u32, u32, u32>(
      "add.cc.u32 %t3, %a, %b; subc.u32 %o, %c, 5;",
      [](u32 a, u32 b, u32 c) { return c - 6 + static_cast<u32>((u64{a} + b) >> 32); });
  CheckInstruction<u32, u32, u32, u32>(
      "add.cc.u32 %t3, %a, %b; addc.cc.u32 %t3, %b, %c; addc.u32 %o, %a, %c;",
      [](u32 a, u32 b, u32 c) {
        const u64 first = u64{a} + b, second = u64{b} + c + (first >> 32);
        return static_cast<u32>(u64{a} + c + (second >> 32));
      });
  CheckInstruction<u32, u32, u32, u32>(
      "mad.lo.cc.u32 %t3, %a, %b, %c; madc.hi.u32 %o, %a, %b, 0;",
      [](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} * b + c) >> 32); });
  CheckInstruction<u64, u64, u64, u64>(
      "mad.lo.cc.u64 %x8, %a, %b, %c; madc.hi.u64 %o, %a, %b, 0;",
      [](u64 a, u64 b, u64 c) { return static_cast<u64>((static_cast<u128>(a) * b + c) >> 64); });
}

template <class T>
void CheckBits(const std::string& suffix) {
  auto with = [&](std::string text) { return text.replace(text.find('$'), 1, suffix); };
  const u32 bits = 8 * sizeof(T);
  Check2<T, T, T>(with("and.$ %o, %a, %b;"), [](T a, T b) { return a & b; });
  Check2<T, T, T>(with("or.$ %o, %a, %b;"), [](T a, T b) { return a | b; });
  Check2<T, T, T>(with("xor.$ %o, %a, %b;"), [](T a, T b) { return a ^ b; });
  Check1<T, T>(with("not.$ %o, %a;"), [](T a) { return static_cast<T>(~a); });
  Check1<T, T>(with("cnot.$ %o, %a;"), [](T a) { return a == 0 ? 1 : 0; });
  Check2<T, T, u32>(with("shl.$ %o, %a, %b;"),
                    [&](T a, u32 n) { return n >= bits ? 0 : static_cast<u64>(a) << n; });
}

TEST_CASE("Logic and shifts of every width agree with the host") {
  CheckBits<u16>("b16");
  CheckBits<u32>("b32");
  CheckBits<u64>("b64");
}

TEST_CASE("Bit counts and reversals agree with a bit by bit reference") {
  Check1<u32, u32>("popc.b32 %o, %a;", [](u32 a) { return std::popcount(a); });
  Check1<u32, u64>("popc.b64 %o, %a;", [](u64 a) { return std::popcount(a); });
  Check1<u32, u32>("clz.b32 %o, %a;", [](u32 a) { return std::countl_zero(a); });
  Check1<u32, u64>("clz.b64 %o, %a;", [](u64 a) { return std::countl_zero(a); });
  Check1<u32, u32>("brev.b32 %o, %a;", [](u32 a) {
    u32 r = 0;
    for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
    return r;
  });
  Check1<u64, u64>("brev.b64 %o, %a;", [](u64 a) {
    u64 r = 0;
    for (int i = 0; i < 64; ++i) r |= (a >> i & 1) << (63 - i);
    return r;
  });
  auto find = [](u64 v, int bits) {
    for (int i = bits - 1; i >= 0; --i) {
      if ((v >> i & 1) != 0) return static_cast<u32>(i);
    }
    return 0xffffffffu;
  };
  Check1<u32, u32>("bfind.u32 %o, %a;", [&](u32 a) { return find(a, 32); });
  Check1<u32, s32>("bfind.s32 %o, %a;",
                   [&](s32 a) { return find(static_cast<u32>(a < 0 ? ~a : a), 32); });
  Check1<u32, u64>("bfind.u64 %o, %a;", [&](u64 a) { return find(a, 64); });
  Check1<u32, u32>("bfind.shiftamt.u32 %o, %a;",
                   [&](u32 a) { return a == 0 ? 0xffffffffu : 31 - find(a, 32); });
}

TEST_CASE("Bit fields agree with a bit by bit reference") {
  auto extract = [](u64 a, u64 pos, u64 len, u32 width, bool is_signed) {
    if (width == 32) {
      pos &= 0xff;
      len &= 0xff;
    }
    const u64 sign_at = std::min<u64>(pos + len - 1, width - 1);
    const bool sign = is_signed && len != 0 && (a >> sign_at & 1) != 0;
    u64 r = 0;
    for (u32 i = 0; i < width; ++i) {
      const bool bit = i < len && pos + i < width ? (a >> (pos + i) & 1) != 0 : sign;
      r |= u64{bit} << i;
    }
    return r;
  };
  CheckInstruction<u32, u32, u32, u32>("bfe.u32 %o, %a, %b, %c;", [&](u32 a, u32 b, u32 c) {
    return static_cast<u32>(extract(a, b, c, 32, false));
  });
  CheckInstruction<u32, u32, u32, u32>("bfe.s32 %o, %a, %b, %c;", [&](u32 a, u32 b, u32 c) {
    return static_cast<u32>(extract(a, b, c, 32, true));
  });
  CheckInstruction<u64, u64, u32, u32>(
      "bfe.u64 %o, %a, %b, %c;", [&](u64 a, u32 b, u32 c) { return extract(a, b, c, 64, false); });
  CheckInstruction<u64, u64, u32, u32>(
      "bfe.s64 %o, %a, %b, %c;", [&](u64 a, u32 b, u32 c) { return extract(a, b, c, 64, true); });
  CheckInstruction<u32, u32, u32, u32>("bfi.b32 %o, %a, 0x12345678, %b, %c;",
                                       [](u32 a, u32 b, u32 c) {
                                         u32 r = 0x12345678;
                                         const u32 pos = b & 0xff, len = c & 0xff;
                                         for (u32 i = 0; i < len && pos + i < 32; ++i)
                                           r = (r & ~(1u << (pos + i))) | (a >> i & 1) << (pos + i);
                                         return r;
                                       });
  CheckInstruction<u64, u64, u32, u32>(
      "bfi.b64 %o, %a, 0x123456789abcdef0, %b, %c;", [](u64 a, u32 b, u32 c) {
        u64 r = 0x123456789abcdef0;
        const u64 pos = b, len = c;
        for (u64 i = 0; i < len && pos + i < 64; ++i)
          r = (r & ~(u64{1} << (pos + i))) | (a >> i & 1) << (pos + i);
        return r;
      });
  Check2<u32, u32, u32>("bmsk.clamp.b32 %o, %a, %b;", [](u32 a, u32 b) {
    u32 r = 0;
    for (u32 i = a; i < 32 && i - a < b; ++i) r |= 1u << i;
    return r;
  });
  Check2<s32, s32, u32>("szext.wrap.s32 %o, %a, %b;", [](s32 a, u32 b) {
    const u32 n = b & 31;
    return n == 0 ? 0 : static_cast<s32>(static_cast<u32>(a) << (32 - n)) >> (32 - n);
  });
}

TEST_CASE("Funnel shifts, permutations and three-input logic agree with the host") {
  CheckInstruction<u32, u32, u32, u32>("shf.l.wrap.b32 %o, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    return static_cast<u32>(((u64{b} << 32 | a) << (c & 31)) >> 32);
  });
  CheckInstruction<u32, u32, u32, u32>("shf.r.clamp.b32 %o, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    return static_cast<u32>((u64{b} << 32 | a) >> std::min(c, 32u));
  });
  CheckInstruction<u32, u32, u32, u32>("lop3.b32 %o, %a, %b, %c, 0xE8;", [](u32 a, u32 b, u32 c) {
    return (a & b) | (a & c) | (b & c);
  });
  CheckInstruction<u32, u32, u32, u32>("lop3.b32 %o, %a, %b, %c, 0x96;",
                                       [](u32 a, u32 b, u32 c) { return a ^ b ^ c; });
  CheckInstruction<u32, u32, u32, u32>("prmt.b32 %o, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (int i = 0; i < 4; ++i) {
      const u32 selector = c >> (4 * i) & 15;
      u32 byte = static_cast<u32>((u64{b} << 32 | a) >> (8 * (selector & 7))) & 0xff;
      if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      r |= byte << (8 * i);
    }
    return r;
  });
}

TEST_CASE("Dot products of packed integers agree with the host") {
  CheckInstruction<u32, u32, u32, u32>("dp4a.s32.u32 %o, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 4; ++i)
      c += static_cast<u32>(static_cast<s8>(a >> (8 * i)) * static_cast<s32>(b >> (8 * i) & 0xff));
    return c;
  });
  CheckInstruction<u32, u32, u32, u32>("dp2a.hi.s32.s32 %o, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    for (int i = 0; i < 2; ++i)
      c += static_cast<u32>(static_cast<s16>(a >> (16 * i)) * static_cast<s8>(b >> (16 + 8 * i)));
    return c;
  });
}

TEST_CASE("Integer conversions extend, truncate and saturate") {
  Check1<u64, s32>("cvt.s64.s32 %o, %a;", [](s32 a) { return static_cast<u64>(s64{a}); });
  Check1<u64, u32>("cvt.u64.u32 %o, %a;", [](u32 a) { return u64{a}; });
  Check1<u32, u64>("cvt.u32.u64 %o, %a;", [](u64 a) { return static_cast<u32>(a); });
  Check1<u32, u32>("cvt.s32.s8 %o, %a;",
                   [](u32 a) { return static_cast<u32>(s32{static_cast<s8>(a)}); });
  Check1<u32, u32>("cvt.u32.u16 %o, %a;", [](u32 a) { return a & 0xffff; });
  Check1<s16, s32>("cvt.sat.s16.s32 %o, %a;", [](s32 a) { return std::clamp(a, -32768, 32767); });
  Check1<u16, s32>("cvt.sat.u8.s32 %o, %a;", [](s32 a) { return std::clamp(a, 0, 255); });
  Check1<u32, s64>("cvt.sat.u32.s64 %o, %a;",
                   [](s64 a) { return static_cast<u32>(std::clamp<s64>(a, 0, 0xffffffffll)); });
  Check1<s64, u64>("cvt.sat.s64.u64 %o, %a;",
                   [](u64 a) { return static_cast<s64>(std::min<u64>(a, INT64_MAX)); });
}

TEST_CASE("Predicates combine, negate and select") {
  CheckInstruction<u32, u32, u32, u32>(
      "setp.gt.u32 %q, %c, 7; setp.lt.and.u32 %p|%s, %a, %b, !%q; selp.u32 %o, 2, 0, %p; @%s "
      "add.u32 %o, %o, 1;",
      [](u32 a, u32 b, u32 c) {
        return (a < b && !(c > 7) ? 2u : 0u) + (!(a < b) && !(c > 7) ? 1u : 0u);
      });
  CheckInstruction<u32, u32, u32, u32>(
      "setp.lo.u32 %p, %a, %b; setp.hs.u32 %q, %b, %c; xor.pred %s, %p, %q; not.pred %s, %s; "
      "mov.u32 %o, 5; @!%s mov.u32 %o, 6;",
      [](u32 a, u32 b, u32 c) { return (a < b) == (b >= c) ? 5u : 6u; });
  CheckInstruction<u32, u32, u32, u32>(
      "setp.lt.u32 %p, %a, %b; setp.lt.u32 %q, %b, %c; and.pred %s, %p, !%q; or.pred %p, !%p, !%q;"
      " selp.u32 %o, 2, 0, %s; @%p add.u32 %o, %o, 1;",
      [](u32 a, u32 b, u32 c) {
        return (a < b && !(b < c) ? 2u : 0u) + (!(a < b) || !(b < c) ? 1u : 0u);
      });
  CheckInstruction<u32, u32, u32, s32>("slct.u32.s32 %o, %a, %b, %c;",
                                       [](u32 a, u32 b, s32 c) { return c >= 0 ? a : b; });
  CheckInstruction<u32, u32, u32, u32>("set.le.u32.u32 %o, %a, %b;",
                                       [](u32 a, u32 b, u32) { return a <= b ? ~0u : 0u; });
}

TEST_CASE("Scalar video instructions select, saturate, combine and merge") {
  CheckInstruction<s32, s32, s32, s32>(
      "vmin.s32.s32.s32.max %o, %a, %b, %c;",
      [](s32 a, s32 b, s32 c) { return std::max(std::min(a, b), c); });
  CheckInstruction<u32, u32, u32, u32>(
      "vmax.u32.u32.u32.min %o, %a, %b, %c;",
      [](u32 a, u32 b, u32 c) { return std::min(std::max(a, b), c); });
  CheckInstruction<u32, u32, u32, u32>(
      "vabsdiff.u32.u32.u32.add %o, %a.b0, %b.b2, %c;", [](u32 a, u32 b, u32 c) {
        const int x = static_cast<u8>(a), y = static_cast<u8>(b >> 16);
        return c + static_cast<u32>(x < y ? y - x : x - y);
      });
  CheckInstruction<s32, s32, s32, s32>("vabsdiff.s32.s32.s32.add %o, %a, %b, %c;",
                                       [](s32 a, s32 b, s32 c) {
                                         const s64 x = a, y = b;
                                         return static_cast<s32>((x < y ? y - x : x - y) + c);
                                       });
  Check2<s32, s32, s32>("vadd.s32.s32.s32.sat %o, %a, %b;", [](s32 a, s32 b) {
    return std::clamp<s64>(s64{a} + b, INT32_MIN, INT32_MAX);
  });
  Check2<u32, u32, s32>("vadd.u32.u32.s32.sat %o, %a, %b;",
                        [](u32 a, s32 b) { return std::clamp<s64>(s64{a} + b, 0, UINT32_MAX); });
  Check2<s32, u32, u32>("vsub.s32.s32.u32 %o, %a.h1, %b.b3;", [](u32 a, u32 b) {
    return static_cast<s16>(a >> 16) - static_cast<s32>(b >> 24);
  });
  CheckInstruction<u32, u32, u32, u32>(
      "vsub.s32.u32.u32.sat %o.b1, %a.h0, %b, %c;", [](u32 a, u32 b, u32 c) {
        const s64 r = std::clamp<s64>(s64{a & 0xffff} - b, -128, 127);
        return (c & 0xffff00ffu) | (static_cast<u32>(r) & 0xff) << 8;
      });
  CheckInstruction<u32, u32, u32, u32>(
      "vadd.u32.u32.u32 %o.h1, %a, %b, %c;",
      [](u32 a, u32 b, u32 c) { return (c & 0xffff) | (a + b) << 16; });
  CheckInstruction<u32, u32, u32, u32>(
      "vshr.u32.u32.u32.clamp.add %o, %a, %b, %c;",
      [](u32 a, u32 b, u32 c) { return c + (b > 31 ? 0 : a >> b); });
  Check2<s32, s32, u32>("vshr.s32.s32.u32.wrap %o, %a, %b;",
                        [](s32 a, u32 b) { return a >> (b & 31); });
  Check2<u32, u32, u32>("vshl.u32.u32.u32.clamp %o, %a, %b;",
                        [](u32 a, u32 b) { return b > 31 ? 0 : a << b; });
  Check2<u32, u32, u32>("vset.u32.u32.lt %o, %a, %b;", [](u32 a, u32 b) { return a < b; });
  CheckInstruction<u32, s32, s32, u32>(
      "vset.s32.s32.ge.add %o, %a, %b.b0, %c;",
      [](s32 a, s32 b, u32 c) { return c + (a >= static_cast<s8>(b) ? 1 : 0); });
  for (const char* bad :
       {"add.u32 %o, %a.b0, %b;", "mov.u32 %o.h1, %a;", "vadd.u32.u32.u32 %o.b0, %a, %b;",
        "vadd.u32.u32.u32.add %o.b0, %a, %b, %c;", "vadd.u32.u32.u32 %o, %a, %b, %c;"}) {
    Memory memory;
    INFO(bad);
    CHECK_THROWS(Program(&memory, InstructionKernel(bad, 4, 4, 4, 4)));
  }
}

TEST_CASE("Video multiply-adds negate, add one, scale and saturate") {
  CheckInstruction<u32, u32, u32, u32>("vmad.u32.u32.u32 %o, %a, %b, %c;",
                                       [](u32 a, u32 b, u32 c) { return a * b + c; });
  CheckInstruction<u32, u32, u32, u32>(
      "vmad.u32.u32.u32.po.shr7 %o, %a.h0, %b.b3, %c;", [](u32 a, u32 b, u32 c) {
        return static_cast<u32>(((a & 0xffff) * u64{b >> 24} + c + 1) >> 7);
      });
  CheckInstruction<u32, u32, u32, u32>(
      "vmad.u32.u32.u32.shr15 %o, %a.h1, %b, %c;",
      [](u32 a, u32 b, u32 c) { return static_cast<u32>(((a >> 16) * u64{b} + c) >> 15); });
  CheckInstruction<u32, u32, u32, u32>(
      "vmad.u32.u32.u32.sat %o, %a, %b, %c;",
      [](u32 a, u32 b, u32 c) { return std::min<u64>(u64{a} * b + c, UINT32_MAX); });
  CheckInstruction<s32, s32, s32, s32>(
      "vmad.s32.s32.s32.sat.shr7 %o, %a, %b.b1, %c;", [](s32 a, s32 b, s32 c) {
        const s64 r = (s64{a} * static_cast<int8_t>(b >> 8) + c) >> 7;
        return std::clamp<s64>(r, INT32_MIN, INT32_MAX);
      });
  CheckInstruction<s32, s32, u32, s32>(
      "vmad.s32.s32.u32.sat %o, %a, %b, -%c;",
      [](s32 a, u32 b, s32 c) { return std::clamp<s64>(s64{a} * b - c, INT32_MIN, INT32_MAX); });
  // A negated product of unsigned integers is signed, and so is what it is added to.
  CheckInstruction<s32, u32, u32, s32>(
      "vmad.u32.u32.u32.sat %o, %a.h0, -%b, %c;", [](u32 a, u32 b, s32 c) {
        return std::clamp<s64>(c - s64{a & 0xffff} * b, INT32_MIN, INT32_MAX);
      });
  CheckInstruction<u32, u32, u32, u32>("vmad.s32.u32.u32 %o, -%a, -%b, %c;",
                                       [](u32 a, u32 b, u32 c) { return a * b + c; });
  for (const char* bad :
       {"vmad.u32.u32.u32 %o.b0, %a, %b, %c;", "vmad.u32.u32.u32 %o, -%a, %b, -%c;",
        "vmad.u32.u32.u32.po %o, %a, %b, -%c;", "vmad.u32.u32.u16 %o, %a, %b, %c;",
        "vmad.u32.u32.u32.shr8 %o, %a, %b, %c;", "vmad.u32.u32.u32 %o, %a, %b;"}) {
    Memory memory;
    INFO(bad);
    CHECK_THROWS(Program(&memory, InstructionKernel(bad, 4, 4, 4, 4)));
  }
}

TEST_CASE("Vector moves pack and unpack") {
  Check2<u64, u32, u32>("mov.b64 %o, {%a, %b};", [](u32 a, u32 b) { return u64{b} << 32 | a; });
  Check1<u32, u64>("mov.b64 {%t1, %o}, %a;", [](u64 a) { return static_cast<u32>(a >> 32); });
  Check1<u32, u64>("mov.b64 {%o, _}, %a;", [](u64 a) { return static_cast<u32>(a); });
  Check2<u32, u16, u16>("mov.b32 %o, {%a, %b};", [](u16 a, u16 b) { return u32{b} << 16 | a; });
  Check1<u16, u32>("{ .reg .b16 %lo; mov.b32 {%lo, %o}, %a; }", [](u32 a) { return a >> 16; });
  Check2<u16, u8, u8>(
      "{ .reg .b8 %x, %y; cvt.u8.u16 %x, %a; cvt.u8.u16 %y, %b; mov.b16 %o, {%x, %y}; }",
      [](u8 a, u8 b) { return b << 8 | a; });
  Check1<u16, u16>("{ .reg .b8 %x, %y; mov.b16 {%x, %y}, %a; mov.b16 %o, {%y, %x}; }",
                   [](u16 a) { return a << 8 | a >> 8; });
}

TEST_CASE("Vector registers move as a whole and by their components") {
  // The second vector has the components of the first in the reverse order.
  Check2<u32, u32, u32>(
      "{ .reg .v2 .u32 %v, %w; mov.v2.u32 %v, {%a, %b}; mov.v2.u32 %w, {%v.y, %v.x};"
      " mov.v2.u32 %v, %w; mul.lo.u32 %o, %v.x, 3; add.u32 %o, %o, %v.y; }",
      [](u32 a, u32 b) { return 3 * b + a; });
  Check2<u32, u32, u32>(
      "{ .reg .b32 %x, %y; mov.v2.b32 {%x, %y}, {%a, %b}; mov.v2.b32 {%x, %y}, {%y, %x};"
      " mul.lo.u32 %o, %x, 3; add.u32 %o, %o, %y; }",
      [](u32 a, u32 b) { return 3 * b + a; });
  Check2<u64, u64, u64>(
      "{ .reg .v2 .u64 %v; .local .align 16 .b8 room[16]; mov.v2.u64 %v, {%a, %b};"
      " st.local.v2.u64 [room], %v; mov.v2.u64 %v, {0, 0}; ld.local.v2.u64 %v, [room];"
      " sub.u64 %o, %v.x, %v.y; }",
      [](u64 a, u64 b) { return a - b; });
  Check2<u32, u32, u32>(
      "{ .reg .v2 .u32 %v; .reg .pred %g; mov.v2.u32 %v, {%a, %b}; setp.lt.u32 %g, %a, %b;"
      " @%g mov.v2.u32 %v, {%b, %a}; mov.u32 %o, %v.x; }",
      [](u32 a, u32 b) { return a < b ? b : a; });
}

TEST_CASE("Special registers have the components of a vector") {
  // The blocks have 45 threads; the test's own index is that of the grid's threads.
  Check1<u32, u32>(
      "{ .reg .v4 .u32 %n; .reg .b32 %x, %y, %z, %w, %i; mov.v4.u32 {%x, %y, %z, %w}, %tid;"
      " mov.v4.u32 %n, %ctaid; mad.lo.u32 %i, %n.x, 45, %x; add.u32 %i, %i, %y; add.u32 %i, %i, %z;"
      " add.u32 %i, %i, %w; add.u32 %i, %i, %n.y; sub.u32 %o, %i, %t0; }",
      [](u32) { return 0; });
  Check1<u32, u32>("{ .reg .v4 .u32 %n; mov.v4.u32 %n, %ntid; add.u32 %o, %n.x, %n.z; }",
                   [](u32) { return 46; });
  Check1<u16, u32>("{ .reg .v4 .u16 %n; mov.v4.u16 %n, %ntid; mov.u16 %o, %n.x; }",
                   [](u32) { return 45; });
}

TEST_CASE("cvt.pack bounds two integers and puts them below a third") {
  const auto bound = [](s32 v, int bits, bool is_signed) {
    const s64 low = is_signed ? -(s64{1} << (bits - 1)) : 0;
    const s64 high = low + (s64{1} << bits) - 1;
    return static_cast<u32>(std::clamp<s64>(v, low, high)) & ((u64{1} << bits) - 1);
  };
  for (const int bits : {2, 4, 8}) {
    for (const bool is_signed : {false, true}) {
      CheckInstruction<u32, s32, s32, u32>(
          std::string("cvt.pack.sat.") + (is_signed ? "s" : "u") + std::to_string(bits) +
              ".s32.b32 %o, %a, %b, %c;",
          [=](s32 a, s32 b, u32 c) {
            return static_cast<u32>(c << 2 * bits | bound(a, bits, is_signed) << bits |
                                    bound(b, bits, is_signed));
          });
    }
  }
  Check2<u32, s32, s32>("cvt.pack.sat.u16.s32 %o, %a, %b;", [=](s32 a, s32 b) {
    return bound(a, 16, false) << 16 | bound(b, 16, false);
  });
  Check2<u32, s32, s32>("cvt.pack.sat.s16.s32 %o, %a, %b;", [=](s32 a, s32 b) {
    return bound(a, 16, true) << 16 | bound(b, 16, true);
  });
}

}  // namespace
}  // namespace detshare::soft::ptx::testing
