// Computes where in a function the value of each register is needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "server/backends/soft/ptx/code_layout.h"

namespace detshare::soft::ptx {

// In positions: instruction i reads at position 2i and writes at 2i + 1.
struct Interval {
  uint32_t begin = 0xffffffffu;
  uint32_t end = 0;
  void Cover(uint32_t position) {
    begin = std::min(begin, position);
    end = std::max(end, position);
  }
  bool used() const { return begin <= end; }
};

// Returns an interval for each of low.vregs. Data flow is computed only for registers that live in
// more than one block.
std::vector<Interval> LiveIntervals(const LowFunction& low, const FlowGraph& graph);

}  // namespace detshare::soft::ptx
