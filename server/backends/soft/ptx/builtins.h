// Functions that the CUDA driver or its device runtime provides to kernels: vprintf, __assertfail,
// malloc, free, cudaGraphSetConditional.
#pragma once

#include <string>

#include "server/backends/soft/ptx/unit.h"

namespace detshare::soft::ptx {

void ExecBuiltin(Context& c, const Instr& in, const CallSite& call, uint32_t mask);

// Reads kernel memory at a generic address as thread `lane` sees it. False when any byte is out of
// reach.
bool ReadGeneric(Context& c, uint32_t lane, uint64_t address, size_t bytes, void* out);

// The host address of `bytes` bytes at a generic address, or null.
uint8_t* TranslateGeneric(Context& c, uint32_t lane, uint64_t address, size_t bytes, bool write);

// Formats as device printf does: `arguments` is the address of the packed argument buffer. *count
// gets the number of conversions, or -1 for a format that cannot be read.
std::string FormatDevicePrintf(Context& c, uint32_t lane, uint64_t format, uint64_t arguments,
                               int* count);

}  // namespace detshare::soft::ptx
