#include "server/backends/soft/ptx/fault.h"

#include <cstdio>

namespace detshare::soft::ptx {

const char* FaultKindName(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone:
      return "no fault";
    case FaultKind::kIllegalAddress:
      return "illegal address";
    case FaultKind::kMisalignedAddress:
      return "misaligned address";
    case FaultKind::kInvalidAddressSpace:
      return "invalid address space";
    case FaultKind::kInvalidPc:
      return "invalid program counter";
    case FaultKind::kTrap:
      return "trap";
    case FaultKind::kAssert:
      return "assertion failed";
    case FaultKind::kStackOverflow:
      return "stack overflow";
    case FaultKind::kIllegalInstruction:
      return "illegal instruction";
    case FaultKind::kUnsupportedInstruction:
      return "instruction that the software GPU does not execute";
    case FaultKind::kDeadlock:
      return "deadlock";
  }
  return "unknown";
}

std::string Fault::ToString() const {
  char text[256];
  std::snprintf(text, sizeof text, ", block (%u,%u,%u), thread (%u,%u,%u), PTX line %u", block[0],
                block[1], block[2], thread[0], thread[1], thread[2], line);
  std::string out = FaultKindName(kind);
  if (kind == FaultKind::kIllegalAddress || kind == FaultKind::kMisalignedAddress ||
      kind == FaultKind::kInvalidPc) {
    char hex[32];
    std::snprintf(hex, sizeof hex, " 0x%llx", static_cast<unsigned long long>(address));
    out += hex;
  }
  return out + " in kernel " + kernel + text;
}

}  // namespace detshare::soft::ptx
