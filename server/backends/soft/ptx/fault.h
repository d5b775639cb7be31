// The faults of a kernel at run time.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace detshare::soft::ptx {

enum class FaultKind {
  kNone = 0,
  kIllegalAddress,       // CUDA_ERROR_ILLEGAL_ADDRESS
  kMisalignedAddress,    // CUDA_ERROR_MISALIGNED_ADDRESS
  kInvalidAddressSpace,  // CUDA_ERROR_INVALID_ADDRESS_SPACE
  kInvalidPc,            // CUDA_ERROR_INVALID_PC: an indirect call to an address without a function
  kTrap,                 // CUDA_ERROR_LAUNCH_FAILED: trap or brkpt
  kAssert,               // CUDA_ERROR_ASSERT: the message went to the output sink
  kStackOverflow,        // CUDA_ERROR_LAUNCH_FAILED: recursion or alloca beyond the stack limit
  kIllegalInstruction,   // CUDA_ERROR_ILLEGAL_INSTRUCTION: operands that no hardware accepts
  // CUDA_ERROR_NOT_SUPPORTED: one that the software GPU knows and does not execute
  kUnsupportedInstruction,
  kDeadlock,  // CUDA_ERROR_LAUNCH_TIMEOUT: all threads wait for barriers that cannot complete
};

// The name as it appears in the log, for example "illegal address".
const char* FaultKindName(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kNone;
  uint64_t address = 0;  // of an address fault: the address of the lowest faulting lane
  std::string kernel;
  std::array<uint32_t, 3> block{};
  std::array<uint32_t, 3> thread{};
  uint32_t line = 0;  // line of the PTX text, from 1

  // One line for the log: kind, address, kernel, block, thread and line.
  std::string ToString() const;
};

}  // namespace detshare::soft::ptx
