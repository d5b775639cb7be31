// The addresses of a warp's lanes, and accesses there.
#include <algorithm>
#include <cstring>

#include "server/backends/soft/ptx/warp_addresses.h"

// Must follow all other headers.
#include "server/backends/soft/ptx/vector_lanes.h"

namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA {
namespace {

template <class A>
AddressPattern PatternOf(const A* addresses, uint64_t step) {
  const A first = addresses[0];
  const A wide_step = static_cast<A>(step);
  // The last lane mostly says that there is no pattern.
  const A last = addresses[kLanes - 1] - first;
  if (last != 0 && last != static_cast<A>((kLanes - 1) * wide_step)) return AddressPattern::kAny;
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
AddressBounds AddOffset(const A* __restrict addresses, uint64_t offset, uint64_t base,
                        uint64_t* __restrict out) {
  const A wrapping = static_cast<A>(offset);
  A low = static_cast<A>(~A{0}), high = 0, bits = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const A address = addresses[i] + wrapping;
    low = address < low ? address : low;
    high = address > high ? address : high;
    bits |= address;
    out[i] = address + base;
  }
  return {low, high, bits};
}

constexpr uint32_t kGroup = 8;

// The pattern of eight pointers.
template <class T>
AddressPattern PatternOfGroup(const uint64_t* pointers) {
  uint64_t from_same = 0, from_consecutive = 0;
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint64_t distance = pointers[i] - pointers[0];
    from_same |= distance;
    from_consecutive |= distance ^ i * sizeof(T);
  }
  return from_same == 0          ? AddressPattern::kSame
         : from_consecutive == 0 ? AddressPattern::kConsecutive
                                 : AddressPattern::kAny;
}

// Relaxed atomic accesses, as those of single lanes: no CPU tears an aligned access of a lane in a vector.
// The compiler does not know that, so the thread sanitizer does not look here.
template <class T>
[[gnu::no_sanitize("thread")]] void LoadEach(const uint64_t* pointers, T* out) {
  for (uint32_t at = 0; at < kLanes; at += kGroup) {
    const uint64_t* const group = pointers + at;
    const auto element = [&](uint32_t i) {
      return __atomic_load_n(reinterpret_cast<const T*>(group[i]), __ATOMIC_RELAXED);
    };
    switch (PatternOfGroup<T>(group)) {
      case AddressPattern::kConsecutive:
        std::memcpy(out + at, reinterpret_cast<const void*>(group[0]), kGroup * sizeof(T));
        break;
      case AddressPattern::kSame:
        std::fill_n(out + at, kGroup, element(0));
        break;
      default:
        for (uint32_t i = 0; i < kGroup; ++i) out[at + i] = element(i);
    }
  }
}

template <class T>
[[gnu::no_sanitize("thread")]] void StoreEach(const uint64_t* pointers, const T* values) {
  for (uint32_t at = 0; at < kLanes; at += kGroup) {
    const uint64_t* const group = pointers + at;
    if (PatternOfGroup<T>(group) == AddressPattern::kConsecutive) {
      std::memcpy(reinterpret_cast<void*>(group[0]), values + at, kGroup * sizeof(T));
      continue;
    }
    for (uint32_t i = 0; i < kGroup; ++i)
      __atomic_store_n(reinterpret_cast<T*>(group[i]), values[at + i], __ATOMIC_RELAXED);
  }
}

}  // namespace

constexpr AddressMath kAddressMath = {
    .pattern32 = PatternOf<uint32_t>,
    .pattern64 = PatternOf<uint64_t>,
    .add32 = AddOffset<uint32_t>,
    .add64 = AddOffset<uint64_t>,
    .load32 = LoadEach<uint32_t>,
    .load64 = LoadEach<uint64_t>,
    .store32 = StoreEach<uint32_t>,
    .store64 = StoreEach<uint64_t>,
};

}  // namespace detshare::soft::ptx::DETSHARE_VECTOR_ISA
