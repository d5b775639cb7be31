#include "server/backends/soft/ptx/memory_access.h"

#include "server/backends/soft/ptx/builtins.h"

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

uint8_t* TranslateGeneric(Context& c, uint32_t lane, uint64_t address, size_t bytes, bool write) {
  return GenericPointer(c, lane, address, bytes, write);
}

bool ReadGeneric(Context& c, uint32_t lane, uint64_t address, size_t bytes, void* out) {
  const uint8_t* p = GenericPointer(c, lane, address, bytes, false);
  if (p == nullptr) return false;
  std::memcpy(out, p, bytes);
  return true;
}

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

}  // namespace detshare::soft::ptx
