// The SIMD video instructions: two 16-bit or four 8-bit lanes in one register.
#include <algorithm>

#include "server/backends/soft/ptx/context.h"
#include "server/backends/soft/ptx/control_ops.h"

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

}  // namespace detshare::soft::ptx
