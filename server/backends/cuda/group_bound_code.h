// Tells which code uses memory of which each time-slice group has its own.
//
// The driver loads code into each context on its own, so each group has its own copy of the
// variables of a library. A program that writes them must stay in one group. Code that refers to no
// variable, or only to text and to tables of virtual functions, may run in any group. Constant
// memory counts only when the host asks for its address (Library::GetGlobal), because kernels do
// not write it. The heap of malloc() also belongs to a context.
#pragma once

#include "server/backends/images/device_code.h"

namespace detshare::cuda {

// True also for code that is not understood. The code may be hostile.
bool IsBoundToGroup(const images::DeviceCode& code);

}  // namespace detshare::cuda
