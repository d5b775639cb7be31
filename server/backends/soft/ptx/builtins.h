// The functions that the CUDA driver or its device runtime provides to kernels: vprintf,
// __assertfail, malloc, free, cudaGraphSetConditional, and the device runtime (device_runtime.h). The
// older device runtime (CDP1) traps.
#pragma once

#include <string>

#include "server/backends/soft/ptx/unit.h"

namespace detshare::soft::ptx {

void ExecBuiltin(Context& c, const Instr& in, const CallSite& call, uint32_t mask);

// An argument of up to 8 bytes; 0 if the call has fewer arguments.
uint64_t Argument(const Context& c, const CallSite& call, size_t index, uint32_t lane);

// Sets the lane's result, if the call has one.
void Return(const Context& c, const CallSite& call, uint32_t lane, uint64_t value);

// Reads a NUL-terminated string of the kernel and cuts it at a maximum length. Returns false when
// the kernel may not access a byte of it.
bool ReadString(Context& c, uint32_t lane, uint64_t address, std::string* out);

// Formats like device printf. `arguments` is the address of the packed argument buffer. *count gets
// the number of conversions, or -1 when the kernel may not access the format.
std::string FormatDevicePrintf(Context& c, uint32_t lane, uint64_t format, uint64_t arguments,
                               int* count);

}  // namespace detshare::soft::ptx
