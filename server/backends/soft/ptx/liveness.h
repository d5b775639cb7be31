// Where in a function each register's value is needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "server/backends/soft/ptx/code_layout.h"

namespace detshare::soft::ptx {

// Positions: instruction i reads at 2i and writes at 2i + 1.
struct Interval {
  uint32_t begin = 0xffffffffu;
  uint32_t end = 0;
  void Cover(uint32_t position) {
    begin = std::min(begin, position);
    end = std::max(end, position);
  }
  bool used() const { return begin <= end; }
};

// One for each of low.vregs. Registers that live in one block are found directly, the others by
// data flow.
std::vector<Interval> LiveIntervals(const LowFunction& low, const FlowGraph& graph);

}  // namespace detshare::soft::ptx
