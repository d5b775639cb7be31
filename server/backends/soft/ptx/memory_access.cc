#include "server/backends/soft/ptx/memory_access.h"

#include <algorithm>
#include <optional>

#include "server/backends/soft/ptx/warp_addresses.h"

namespace detshare::soft::ptx {

bool FindRange(Context& c, uint64_t address, uint64_t bytes, bool write) {
  auto use = [&](const MemoryRange& r) {
    if (address < r.begin || address >= r.end || bytes > r.end - address || (write && !r.writable))
      return false;
    c.range_begin = r.begin;
    c.range_end = r.end;
    c.range_writable = r.writable;
    return true;
  };
  if (address >= kSharedWindow || bytes == 0) return false;
  for (const MemoryRange& r : c.unit->ranges) {
    if (use(r)) return true;
  }
  MemoryRange range;
  if (!c.unit->launch->services.guard->Find(address, &range)) return false;
  if (!use(range)) return false;
  if (c.unit->ranges.size() < 64) c.unit->ranges.push_back(range);
  return true;
}

uint8_t* SharedPointer(Context& c, uint64_t offset, uint64_t bytes) {
  uint8_t* base = c.shared;
  if (offset >= kClusterStride) {
    const uint64_t rank = offset / kClusterStride - 1;
    if (rank >= c.unit->blocks.size()) return nullptr;
    base = c.unit->blocks[rank].shared.get();
    offset %= kClusterStride;
  }
  if (offset > c.shared_bytes || bytes > c.shared_bytes - offset) return nullptr;
  return base + offset;
}

uint8_t* GenericPointer(Context& c, uint32_t lane, uint64_t address, uint64_t bytes, bool write) {
  if (address < kSharedWindow) {
    return Allowed(c, address, bytes, write) ? reinterpret_cast<uint8_t*>(address) : nullptr;
  }
  const uint64_t offset = address % kWindowSize;
  switch (address - offset) {
    case kSharedWindow:
      return SharedPointer(c, offset, bytes);
    case kLocalWindow:
      if (offset > c.stack_bytes || bytes > c.stack_bytes - offset) return nullptr;
      return c.local + uint64_t{lane} * c.stack_bytes + offset;
    case kParamWindow:
      if (write || offset > c.kernel_param_bytes || bytes > c.kernel_param_bytes - offset)
        return nullptr;
      return const_cast<uint8_t*>(c.kernel_params) + offset;
    default:
      return nullptr;
  }
}

bool ReadGeneric(Context& c, uint32_t lane, uint64_t address, size_t bytes, void* out) {
  const uint8_t* p = GenericPointer(c, lane, address, bytes, false);
  if (p == nullptr) return false;
  std::memcpy(out, p, bytes);
  return true;
}

namespace {

const AddressMath g_math = SelectAddressMath();

// Checks each lane on its own. The first violation raises its fault.
bool SlowPointers(Context& c, const Instr& in, uint32_t mask, Reach reach, uint64_t bytes,
                  uint64_t align, bool write, uint64_t* addresses) {
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const uint32_t lane = FirstLane(m);
    const uint64_t address = addresses[lane];
    if ((address & (align - 1)) != 0) {
      RaiseFault(c, in, FaultKind::kMisalignedAddress, address, lane);
      return false;
    }
    uint8_t* p = nullptr;
    switch (reach) {
      case Reach::kGlobal:
        if (Allowed(c, address, bytes, write)) p = reinterpret_cast<uint8_t*>(address);
        break;
      case Reach::kGeneric:
        p = GenericPointer(c, lane, address, bytes, write);
        break;
      case Reach::kShared:
        p = SharedPointer(c, address, bytes);
        break;
      case Reach::kLocal:
        if (address <= c.stack_bytes && bytes <= c.stack_bytes - address)
          p = c.local + uint64_t{lane} * c.stack_bytes + address;
        break;
    }
    if (p == nullptr) {
      RaiseFault(c, in, FaultKind::kIllegalAddress, address, lane);
      return false;
    }
    addresses[lane] = reinterpret_cast<uint64_t>(p);
  }
  return true;
}

template <bool kAddress64>
using Address = std::conditional_t<kAddress64, uint64_t, uint32_t>;  // 32-bit addresses wrap

template <bool kAddress64>
inline AddressBounds AddOffset(const Context& c, const Instr& in, uint32_t mask, uint64_t base,
                               uint64_t* out) {
  const auto* a = c.Src<Address<kAddress64>>(in.a);
  const uint64_t offset = static_cast<uint64_t>(in.imm);
  if (mask == kFullMask) {
    if constexpr (kAddress64) {
      return g_math.add64(a, offset, base, out);
    } else {
      return g_math.add32(a, offset, base, out);
    }
  }
  AddressBounds bounds;
  ForEachLane(mask, [&](uint32_t i) {
    const uint64_t address = static_cast<Address<kAddress64>>(a[i] + offset);
    out[i] = address + base;
    bounds.low = std::min(bounds.low, address);
    bounds.high = std::max(bounds.high, address);
    bounds.bits |= address;
  });
  return bounds;
}

template <bool kAddress64>
inline AddressPattern PatternOf(const Context& c, const Instr& in, uint64_t step) {
  const auto* a = c.Src<Address<kAddress64>>(in.a);
  if constexpr (kAddress64) {
    return g_math.pattern64(a, step);
  } else {
    return g_math.pattern32(a, step);
  }
}

constexpr bool IsGlobal(Reach reach) { return reach == Reach::kGlobal || reach == Reach::kGeneric; }

// Returns what turns the addresses into host pointers when all lanes access one range and may do
// so; nothing otherwise. In local memory the lane's place is still to be added.
template <Reach kReach>
inline std::optional<uint64_t> BaseOf(Context& c, const AddressBounds& bounds, uint64_t bytes,
                                      uint64_t align, bool write) {
  // clang 14 captures no structured bindings.
  const uint64_t low = bounds.low, high = bounds.high, bits = bounds.bits;
  if ((bits & (align - 1)) != 0 || high < low) return std::nullopt;
  const auto ends_in = [&](uint64_t begin, uint64_t size) {
    return high - begin <= size && bytes <= size - (high - begin);
  };
  if constexpr (kReach == Reach::kShared) {
    if (ends_in(0, c.shared_bytes)) return reinterpret_cast<uint64_t>(c.shared);
  } else if constexpr (kReach == Reach::kLocal) {
    if (ends_in(0, c.stack_bytes)) return reinterpret_cast<uint64_t>(c.local);
  } else if (high < kSharedWindow) {
    if (Allowed(c, low, high - low + bytes, write)) return 0;
  } else if (kReach == Reach::kGeneric && low >= kSharedWindow &&
             ends_in(kSharedWindow, c.shared_bytes)) {
    return reinterpret_cast<uint64_t>(c.shared) - kSharedWindow;
  }
  return std::nullopt;
}

// Counts the sectors from the lowest address to the highest, but at most those that the lanes access
// each on its own.
inline void CountGlobal(const Context& c, const AddressBounds& bounds, uint32_t mask,
                        uint64_t bytes, uint64_t align, bool write) {
  const auto [low, high, bits] = bounds;
  const uint64_t lanes = mask == kFullMask ? kLanes : LaneCount(mask);
  (write ? c.counters->global_bytes_written : c.counters->global_bytes_read) += lanes * bytes;
  uint64_t sectors = lanes * ((bytes + 31) / 32);
  if (high < kSharedWindow && (bits & (align - 1)) == 0 && high >= low)
    sectors = std::min(sectors, high / 32 - low / 32 + 1);
  c.counters->global_sectors += sectors;
}

}  // namespace

template <Reach kReach, bool kAddress64>
bool Pointers(Context& c, const Instr& in, uint32_t mask, uint64_t bytes, uint64_t align,
              bool write, uint64_t* pointers) {
  // The base of most accesses.
  const uint64_t usual = kReach == Reach::kShared ? reinterpret_cast<uint64_t>(c.shared) : 0;
  const AddressBounds bounds = AddOffset<kAddress64>(c, in, mask, usual, pointers);
  if constexpr (IsGlobal(kReach)) CountGlobal(c, bounds, mask, bytes, align, write);
  const std::optional<uint64_t> base = BaseOf<kReach>(c, bounds, bytes, align, write);
  if (!base) {
    ForEachLane(mask, [&](uint32_t i) { pointers[i] -= usual; });
    return SlowPointers(c, in, mask, kReach, bytes, align, write, pointers);
  }
  const uint64_t stride = kReach == Reach::kLocal ? c.stack_bytes : 0;
  if (*base != usual || stride != 0) {
    for (uint32_t i = 0; i < kLanes; ++i) pointers[i] += *base - usual + i * stride;
  }
  return true;
}

template <Reach kReach, bool kAddress64>
Access FindAccess(Context& c, const Instr& in, uint32_t mask, uint64_t bytes, bool write,
                  uint64_t* pointers) {
  // Each lane has its own local memory.
  if (kReach != Reach::kLocal && mask == kFullMask) {
    const AddressPattern pattern = PatternOf<kAddress64>(c, in, bytes);
    if (pattern != AddressPattern::kAny) {
      const uint64_t low = static_cast<Address<kAddress64>>(*c.Src<Address<kAddress64>>(in.a) +
                                                            static_cast<uint64_t>(in.imm));
      const uint64_t length = pattern == AddressPattern::kSame ? 0 : (kLanes - 1) * bytes;
      const AddressBounds bounds = {
          .low = low, .high = static_cast<Address<kAddress64>>(low + length), .bits = low};
      if (const auto base = BaseOf<kReach>(c, bounds, bytes, bytes, write)) {
        if constexpr (IsGlobal(kReach)) CountGlobal(c, bounds, mask, bytes, bytes, write);
        pointers[0] = low + *base;
        return pattern == AddressPattern::kSame ? Access::kSame : Access::kConsecutive;
      }
    }
  }
  return Pointers<kReach, kAddress64>(c, in, mask, bytes, bytes, write, pointers) ? Access::kEach
                                                                                  : Access::kFault;
}

#define DETSHARE_INSTANTIATE(reach, address64)                                                   \
  template bool Pointers<reach, address64>(Context&, const Instr&, uint32_t, uint64_t, uint64_t, \
                                           bool, uint64_t*);                                     \
  template Access FindAccess<reach, address64>(Context&, const Instr&, uint32_t, uint64_t, bool, \
                                               uint64_t*)
DETSHARE_INSTANTIATE(Reach::kGlobal, true);
DETSHARE_INSTANTIATE(Reach::kGlobal, false);
DETSHARE_INSTANTIATE(Reach::kGeneric, true);
DETSHARE_INSTANTIATE(Reach::kGeneric, false);
DETSHARE_INSTANTIATE(Reach::kShared, true);
DETSHARE_INSTANTIATE(Reach::kShared, false);
DETSHARE_INSTANTIATE(Reach::kLocal, true);
DETSHARE_INSTANTIATE(Reach::kLocal, false);
#undef DETSHARE_INSTANTIATE

}  // namespace detshare::soft::ptx
