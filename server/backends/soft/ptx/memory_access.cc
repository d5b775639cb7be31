#include "server/backends/soft/ptx/memory_access.h"

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
inline void LoadAddresses(const Context& c, const Instr& in, uint32_t mask, uint64_t* out,
                          uint64_t* low, uint64_t* high, uint64_t* bits) {
  using A = std::conditional_t<kAddress64, uint64_t, uint32_t>;
  const A* a = c.Src<A>(in.a);
  const A offset = static_cast<A>(in.imm);  // 32-bit addresses wrap
  uint64_t lo = ~uint64_t{0}, hi = 0, all = 0;
  if (mask == kFullMask) {
    for (uint32_t i = 0; i < kLanes; ++i) {
      const uint64_t address = static_cast<A>(a[i] + offset);
      out[i] = address;
      lo = address < lo ? address : lo;
      hi = address > hi ? address : hi;
      all |= address;
    }
  } else {
    ForEachLane(mask, [&](uint32_t i) {
      const uint64_t address = static_cast<A>(a[i] + offset);
      out[i] = address;
      lo = address < lo ? address : lo;
      hi = address > hi ? address : hi;
      all |= address;
    });
  }
  *low = lo;
  *high = hi;
  *bits = all;
}

}  // namespace

// The common case: all lanes access one known range.
template <Reach kReach, bool kAddress64>
bool Pointers(Context& c, const Instr& in, uint32_t mask, uint64_t bytes, uint64_t align,
              bool write, uint64_t* pointers) {
  uint64_t low, high, bits;
  LoadAddresses<kAddress64>(c, in, mask, pointers, &low, &high, &bits);
  if constexpr (kReach == Reach::kShared) {
    if (high <= c.shared_bytes && bytes <= c.shared_bytes - high && (bits & (align - 1)) == 0) {
      const uint64_t base = reinterpret_cast<uint64_t>(c.shared);
      for (uint32_t i = 0; i < kLanes; ++i) pointers[i] += base;
      return true;
    }
  } else if constexpr (kReach == Reach::kLocal) {
    if (high <= c.stack_bytes && bytes <= c.stack_bytes - high && (bits & (align - 1)) == 0) {
      const uint64_t base = reinterpret_cast<uint64_t>(c.local);
      for (uint32_t i = 0; i < kLanes; ++i) pointers[i] += base + uint64_t{i} * c.stack_bytes;
      return true;
    }
  } else {
    uint64_t& sectors = c.counters->global_sectors;
    const uint64_t span = high / 32 - low / 32 + 1;
    const uint64_t lanes = LaneCount(mask) * ((bytes + 31) / 32);
    (write ? c.counters->global_bytes_written : c.counters->global_bytes_read) +=
        LaneCount(mask) * bytes;
    if (high < kSharedWindow && (bits & (align - 1)) == 0 && high >= low) {
      sectors += span < lanes ? span : lanes;
      if (Allowed(c, low, high - low + bytes, write)) return true;
    } else {
      sectors += lanes;
    }
  }
  return SlowPointers(c, in, mask, kReach, bytes, align, write, pointers);
}

template bool Pointers<Reach::kGlobal, true>(Context&, const Instr&, uint32_t, uint64_t, uint64_t,
                                             bool, uint64_t*);
template bool Pointers<Reach::kGlobal, false>(Context&, const Instr&, uint32_t, uint64_t, uint64_t,
                                              bool, uint64_t*);
template bool Pointers<Reach::kGeneric, true>(Context&, const Instr&, uint32_t, uint64_t, uint64_t,
                                              bool, uint64_t*);
template bool Pointers<Reach::kGeneric, false>(Context&, const Instr&, uint32_t, uint64_t, uint64_t,
                                               bool, uint64_t*);
template bool Pointers<Reach::kShared, true>(Context&, const Instr&, uint32_t, uint64_t, uint64_t,
                                             bool, uint64_t*);
template bool Pointers<Reach::kShared, false>(Context&, const Instr&, uint32_t, uint64_t, uint64_t,
                                              bool, uint64_t*);
template bool Pointers<Reach::kLocal, true>(Context&, const Instr&, uint32_t, uint64_t, uint64_t,
                                            bool, uint64_t*);
template bool Pointers<Reach::kLocal, false>(Context&, const Instr&, uint32_t, uint64_t, uint64_t,
                                             bool, uint64_t*);

}  // namespace detshare::soft::ptx
