// What functions need together with the functions that they call.
#pragma once

#include <cstdint>
#include <vector>

#include "server/backends/soft/ptx/ir.h"

namespace detshare::soft::ptx {

// Of a function and of all functions that it reaches through calls.
struct CallTotals {
  // The size of the deepest stack, with one level of each recursion. Functions that call each other
  // count together, so for them it is an upper bound.
  uint64_t local_bytes = 0;
  uint32_t register_pressure = 0;     // the largest one
  uint32_t dynamic_shared_align = 0;  // the largest one
  bool uses_module_shared = false;    // one of them does
  bool uses_reserved_shared = false;  // one of them does
};

// Returns the totals of each function, in time linear in the number of functions and callees.
// `address_taken` has the functions that an indirect call may reach.
std::vector<CallTotals> TotalsOfCalls(const std::vector<FunctionCode>& functions,
                                      const std::vector<uint32_t>& address_taken);

}  // namespace detshare::soft::ptx
