// Brings lowered instructions into their final form: computes the control-flow graph, the
// reconvergence points and the places of registers.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/backends/soft/ptx/lower.h"

namespace detshare::soft::ptx {

// The basic blocks of a function. The last block is the function's end.
struct FlowGraph {
  struct Block {
    uint32_t begin = 0, end = 0;  // instructions
    std::vector<uint32_t> successors;
  };
  static constexpr uint32_t kNone = 0xffffffffu;
  std::vector<Block> blocks;
  std::vector<uint32_t> block_of;  // instruction to block, for the first instruction of each block
  std::vector<uint32_t> post_dominator;  // immediate, or kNone
};

// `low` must end with its final return. Returns InvalidArgument when the function exceeds a limit.
absl::Status BuildFlowGraph(const LowFunction& low, FlowGraph* graph);

// Appends the final return to `low`, and fills low->code.
absl::Status LayoutCode(LowFunction* low);

}  // namespace detshare::soft::ptx
