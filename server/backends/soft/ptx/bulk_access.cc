#include "server/backends/soft/ptx/bulk_access.h"

namespace detshare::soft::ptx {
namespace {

uint8_t* Checked(Context& c, const Instr& in, uint32_t lane, uint64_t address, uint64_t align,
                 uint8_t* p) {
  if (address % align != 0) {
    RaiseFault(c, in, FaultKind::kMisalignedAddress, address, lane);
    return nullptr;
  }
  if (p == nullptr) RaiseFault(c, in, FaultKind::kIllegalAddress, address, lane);
  return p;
}

}  // namespace

uint8_t* BulkGlobal(Context& c, const Instr& in, uint32_t lane, uint64_t address, uint64_t bytes,
                    bool write) {
  CountBulk(c, bytes, write);
  // Where no byte is accessed, every address is good.
  static uint8_t nothing;
  uint8_t* p = nullptr;
  if (bytes == 0) {
    p = &nothing;
  } else if (Allowed(c, address, bytes, write)) {
    p = reinterpret_cast<uint8_t*>(address);
  }
  return Checked(c, in, lane, address, 16, p);
}

uint8_t* BulkShared(Context& c, const Instr& in, uint32_t lane, uint64_t address, uint64_t bytes,
                    uint64_t align) {
  return Checked(c, in, lane, address, align, SharedPointer(c, address, bytes));
}

}  // namespace detshare::soft::ptx
