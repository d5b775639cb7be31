// The video instructions: on two 16-bit or four 8-bit lanes in one register, and scalar ones.
#include <algorithm>

#include "server/backends/soft/ptx/compare.h"
#include "server/backends/soft/ptx/context.h"
#include "server/backends/soft/ptx/control_ops.h"
#include "server/backends/soft/ptx/vector_ops.h"

namespace detshare::soft::ptx {

void ExecVideo(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = c.Src<uint32_t>(in.b);
  const uint32_t* e = c.Src<uint32_t>(in.c);
  const uint32_t op = in.aux & VideoAux::kOpMask;
  const bool four = (in.aux & VideoAux::kFour) != 0, add = (in.aux & VideoAux::kAdd) != 0;
  const bool sat = (in.aux & VideoAux::kSat) != 0, signed_d = (in.aux & VideoAux::kSignedD) != 0;
  const uint32_t bits = four ? 8 : 16, parts = four ? 4 : 2;
  const int32_t low = signed_d ? -(1 << (bits - 1)) : 0;
  const int32_t high = signed_d ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
  auto part = [&](uint32_t value, uint32_t k, bool is_signed) {
    const uint32_t field = value >> (k * bits) & ((1u << bits) - 1);
    return is_signed ? static_cast<int32_t>(field << (32 - bits)) >> (32 - bits)
                     : static_cast<int32_t>(field);
  };
  ForEachLane(mask, [&](uint32_t i) {
    uint32_t result = 0, sum = e[i];
    for (uint32_t k = 0; k < parts; ++k) {
      const int32_t x = part(a[i], k, (in.aux & VideoAux::kSignedA) != 0),
                    y = part(b[i], k, (in.aux & VideoAux::kSignedB) != 0);
      int32_t r = 0;
      switch (op) {
        case VideoAux::kAddOp:
          r = x + y;
          break;
        case VideoAux::kSubOp:
          r = x - y;
          break;
        case VideoAux::kAverageOp:
          r = (x + y + (x + y > 0 ? 1 : -1)) / 2;
          break;  // ties away from zero
        case VideoAux::kAbsDiffOp:
          r = x < y ? y - x : x - y;
          break;
        case VideoAux::kMinOp:
          r = std::min(x, y);
          break;
        default:
          r = std::max(x, y);
          break;
      }
      if ((in.aux & VideoAux::kRelu) != 0 && r < 0) r = 0;
      if (sat) r = std::clamp(r, low, high);
      sum += static_cast<uint32_t>(r);
      result |= (static_cast<uint32_t>(r) & ((1u << bits) - 1)) << (k * bits);
    }
    d[i] = add ? sum : result;
  });
}

namespace {

// The place of a part of a register: as in Operand::selector.
uint32_t BitsOf(uint8_t selector) { return selector == 0 ? 32 : selector <= 4 ? 8 : 16; }
uint32_t ShiftOf(uint8_t selector) {
  return selector == 0 ? 0 : selector <= 4 ? (selector - 1) * 8 : (selector - 5) * 16;
}

int64_t Extend(uint64_t value, uint32_t bits, bool is_signed) {
  value <<= 64 - bits;
  return is_signed ? static_cast<int64_t>(value) >> (64 - bits)
                   : static_cast<int64_t>(value >> (64 - bits));
}

int64_t ScalarResult(const ScalarVideo& video, int64_t a, int64_t b) {
  const uint32_t count = static_cast<uint32_t>(b);
  const uint32_t by = video.wrap ? count & 31 : std::min(count, 32u);
  switch (video.op) {
    case ScalarVideo::kAdd:
      return a + b;
    case ScalarVideo::kSub:
      return a - b;
    case ScalarVideo::kAbsDiff:
      return a < b ? b - a : a - b;
    case ScalarVideo::kMin:
      return std::min(a, b);
    case ScalarVideo::kMax:
      return std::max(a, b);
    case ScalarVideo::kShl:
      return static_cast<int64_t>(static_cast<uint64_t>(a) << by);
    case ScalarVideo::kShr:
      return a >> by;
    default:
      return Holds(static_cast<Compare>(video.compare), a, b);
  }
}

// The byte, half or word of a register that the selector names.
int64_t Selected(uint32_t value, uint8_t selector, bool is_signed) {
  return Extend(value >> ShiftOf(selector), BitsOf(selector), is_signed);
}

}  // namespace

void ExecScalarVideo(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = c.Src<uint32_t>(in.b);
  const uint32_t* e = c.Src<uint32_t>(in.c);
  const ScalarVideo video = ScalarVideo::Unpack(in.imm);
  const bool signed_a = (video.signs & ScalarVideo::kSignedA) != 0,
             signed_b = (video.signs & ScalarVideo::kSignedB) != 0,
             signed_d = (video.signs & ScalarVideo::kSignedD) != 0;
  const uint32_t bits = BitsOf(video.select_d), shift = ShiftOf(video.select_d);
  const uint64_t field = (uint64_t{1} << bits) - 1;
  const int64_t low = signed_d ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t high = low + static_cast<int64_t>(field);
  ForEachLane(mask, [&](uint32_t i) {
    const int64_t x = Selected(a[i], video.select_a, signed_a);
    const int64_t y = Selected(b[i], video.select_b, signed_b);
    int64_t r = ScalarResult(video, x, y);
    if (video.saturate) r = std::clamp(r, low, high);
    if (video.second != ScalarVideo::kNone) {
      const int64_t first = Extend(static_cast<uint64_t>(r), 32, signed_d);
      const int64_t rest = Extend(e[i], 32, signed_d);
      r = video.second == ScalarVideo::kAdd   ? first + rest
          : video.second == ScalarVideo::kMin ? std::min(first, rest)
                                              : std::max(first, rest);
    }
    const uint64_t kept = e[i] & ~(field << shift);
    d[i] = static_cast<uint32_t>(kept | (static_cast<uint64_t>(r) & field) << shift);
  });
}

void ExecVideoMad(Context& c, const Instr& in, uint32_t mask) {
  uint32_t* d = c.Dst<uint32_t>(in.d);
  const uint32_t* a = c.Src<uint32_t>(in.a);
  const uint32_t* b = c.Src<uint32_t>(in.b);
  const uint32_t* e = c.Src<uint32_t>(in.c);
  const ScalarVideo video = ScalarVideo::Unpack(in.imm);
  const bool signed_a = (video.signs & ScalarVideo::kSignedA) != 0,
             signed_b = (video.signs & ScalarVideo::kSignedB) != 0;
  // The type of the result does not count.
  const bool is_signed = signed_a || signed_b || video.negate_product || video.negate_c;
  // A negated product of two 32-bit integers needs 65 bits.
  using Wide = __int128;
  const Wide low = is_signed ? INT32_MIN : 0, high = is_signed ? Wide{INT32_MAX} : UINT32_MAX;
  ForEachLane(mask, [&](uint32_t i) {
    const Wide x = Selected(a[i], video.select_a, signed_a);
    const Wide y = Selected(b[i], video.select_b, signed_b);
    const Wide product = video.negate_product ? -(x * y) : x * y;
    const Wide rest = Extend(e[i], 32, is_signed);
    Wide r = product + (video.negate_c ? -rest : rest) + (video.plus_one ? 1 : 0);
    r >>= video.scale;
    if (video.saturate) r = std::clamp(r, low, high);
    d[i] = static_cast<uint32_t>(r);
  });
}

}  // namespace detshare::soft::ptx
