// The addresses of a warp's lanes.
#include "server/backends/soft/ptx/warp_addresses.h"

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_lanes.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

template <class A>
AddressPattern PatternOf(const A* addresses, uint64_t step) {
  const A first = addresses[0];
  const A wide_step = static_cast<A>(step);
  A from_same = 0, from_consecutive = 0, expected = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const A distance = addresses[i] - first;
    from_same |= distance;
    from_consecutive |= distance ^ expected;
    expected += wide_step;
  }
  return from_same == 0          ? AddressPattern::kSame
         : from_consecutive == 0 ? AddressPattern::kConsecutive
                                 : AddressPattern::kAny;
}

template <class A>
AddressBounds AddOffset(const A* addresses, uint64_t offset, uint64_t* out) {
  const A wrapping = static_cast<A>(offset);
  A low = static_cast<A>(~A{0}), high = 0, bits = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const A address = addresses[i] + wrapping;
    low = address < low ? address : low;
    high = address > high ? address : high;
    bits |= address;
  }
  for (uint32_t i = 0; i < kLanes; ++i) out[i] = static_cast<A>(addresses[i] + wrapping);
  return {low, high, bits};
}

}  // namespace

constexpr AddressMath kAddressMath = {
    .pattern32 = PatternOf<uint32_t>,
    .pattern64 = PatternOf<uint64_t>,
    .add32 = AddOffset<uint32_t>,
    .add64 = AddOffset<uint64_t>,
};

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
