#include <algorithm>

#include "server/backends/soft/ptx/code_layout.h"
#include "server/backends/soft/ptx/parser.h"

namespace detshare::soft::ptx {
namespace {

// Computes post-dominators with the algorithm of Cooper, Harvey and Kennedy on the reversed graph.
// Returns false for graphs that need too many steps.
bool PostDominators(FlowGraph* graph) {
  const uint32_t count = static_cast<uint32_t>(graph->blocks.size());
  const uint32_t exit = count - 1;
  std::vector<std::vector<uint32_t>> predecessors(count);
  for (uint32_t b = 0; b < count; ++b) {
    for (uint32_t s : graph->blocks[b].successors) predecessors[s].push_back(b);
  }
  constexpr uint32_t kNone = FlowGraph::kNone;
  std::vector<uint32_t> number(count, kNone);  // post-order in the reversed graph
  std::vector<uint32_t> order;
  std::vector<std::pair<uint32_t, size_t>> stack;
  std::vector<bool> seen(count);
  auto visit = [&](uint32_t root) {
    seen[root] = true;
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [b, next] = stack.back();
      if (next < predecessors[b].size()) {
        const uint32_t p = predecessors[b][next++];
        if (!seen[p]) {
          seen[p] = true;
          stack.emplace_back(p, 0);
        }
      } else {
        number[b] = static_cast<uint32_t>(order.size());
        order.push_back(b);
        stack.pop_back();
      }
    }
  };
  visit(exit);
  bool dead_ends = false;
  for (uint32_t b = 0; b < count; ++b) {
    // An exit other than a return leads to the end only where no path returns.
    if (!seen[b] && graph->blocks[b].successors.empty()) {
      graph->blocks[b].successors.push_back(exit);
      dead_ends = true;
    }
  }
  if (dead_ends) {
    for (auto& list : predecessors) list.clear();
    for (uint32_t b = 0; b < count; ++b) {
      for (uint32_t s : graph->blocks[b].successors) predecessors[s].push_back(b);
    }
    std::fill(number.begin(), number.end(), kNone);
    std::fill(seen.begin(), seen.end(), false);
    order.clear();
    visit(exit);
  }
  std::vector<uint32_t>& dom = graph->post_dominator;
  dom.assign(count, kNone);
  dom[exit] = exit;
  uint64_t steps = 0;
  constexpr uint64_t kMaxSteps = 100'000'000;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = order.size(); i-- > 0;) {
      const uint32_t b = order[i];
      if (b == exit) continue;
      uint32_t result = kNone;
      for (uint32_t s : graph->blocks[b].successors) {
        if (++steps > kMaxSteps) return false;
        if (dom[s] == kNone) continue;
        if (result == kNone) {
          result = s;
          continue;
        }
        uint32_t x = s, y = result;
        while (x != y) {
          while (number[x] < number[y]) x = dom[x], ++steps;
          while (number[y] < number[x]) y = dom[y], ++steps;
          if (steps > kMaxSteps) return false;
        }
        result = x;
      }
      if (dom[b] != result) {
        dom[b] = result;
        changed = true;
      }
    }
  }
  dom[exit] = kNone;
  return true;
}

}  // namespace

absl::Status BuildFlowGraph(const LowFunction& low, FlowGraph* graph) {
  const std::vector<LowInstr>& instrs = low.instrs;
  const uint32_t count = static_cast<uint32_t>(instrs.size());
  std::vector<bool> leader(count + 1);
  leader[0] = true;
  leader[count - 1] = true;
  using Flow = LowInstr::Flow;
  for (uint32_t i = 0; i < count; ++i) {
    const LowInstr& in = instrs[i];
    if (in.flow == Flow::kNext) continue;
    leader[i + 1] = true;
    if (in.flow == Flow::kBranch || in.flow == Flow::kBranchCond)
      leader[low.labels[in.target]] = true;
  }
  for (const std::vector<uint32_t>& list : low.target_lists) {
    for (uint32_t t : list) leader[low.labels[t]] = true;
  }
  graph->block_of.assign(count, FlowGraph::kNone);
  for (uint32_t i = 0; i < count; ++i) {
    if (leader[i]) {
      if (!graph->blocks.empty()) graph->blocks.back().end = i;
      graph->block_of[i] = static_cast<uint32_t>(graph->blocks.size());
      graph->blocks.emplace_back();
      graph->blocks.back().begin = i;
    }
  }
  graph->blocks.back().end = count;
  const uint32_t exit = static_cast<uint32_t>(graph->blocks.size()) - 1;
  for (uint32_t b = 0; b < exit; ++b) {
    FlowGraph::Block& block = graph->blocks[b];
    const LowInstr& last = instrs[block.end - 1];
    switch (last.flow) {
      case Flow::kBranch:
        block.successors = {graph->block_of[low.labels[last.target]]};
        break;
      case Flow::kBranchCond:
        block.successors = {graph->block_of[low.labels[last.target]], b + 1};
        break;
      case Flow::kBranchIndex:
        for (uint32_t t : low.target_lists[last.target])
          block.successors.push_back(graph->block_of[low.labels[t]]);
        std::sort(block.successors.begin(), block.successors.end());
        block.successors.erase(std::unique(block.successors.begin(), block.successors.end()),
                               block.successors.end());
        break;
      case Flow::kReturn:
        block.successors = {exit};
        break;
      case Flow::kExit:
        break;
      case Flow::kNext:
        block.successors = {b + 1};
        break;
    }
  }
  if (!PostDominators(graph)) return PtxError(low.ast->line, "control flow too complex");
  return absl::OkStatus();
}

}  // namespace detshare::soft::ptx
