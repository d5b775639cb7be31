#include "server/backends/soft/ptx/code_layout.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>

#include "server/backends/soft/ptx/liveness.h"
#include "server/backends/soft/ptx/parser.h"

namespace detshare::soft::ptx {
namespace {

// Gives each register of a class a slot by linear scan. Registers whose intervals do not meet share
// slots.
uint32_t AssignSlots(const std::vector<Interval>& intervals, const std::vector<RegClass>& classes,
                     RegClass wanted, std::vector<uint32_t>* slot) {
  std::vector<uint32_t> order;
  for (uint32_t v = 0; v < intervals.size(); ++v) {
    if (classes[v] == wanted && intervals[v].used()) order.push_back(v);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) {
    return intervals[x].begin != intervals[y].begin ? intervals[x].begin < intervals[y].begin
                                                    : x < y;
  });
  using Active = std::pair<uint32_t, uint32_t>;  // end, slot
  std::priority_queue<Active, std::vector<Active>, std::greater<>> active;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free;
  uint32_t count = 0;
  for (uint32_t v : order) {
    while (!active.empty() && active.top().first < intervals[v].begin) {
      free.push(active.top().second);
      active.pop();
    }
    uint32_t s;
    if (free.empty()) {
      s = count++;
    } else {
      s = free.top();
      free.pop();
    }
    (*slot)[v] = s;
    active.emplace(intervals[v].end, s);
  }
  return count;
}

constexpr uint32_t kMaxFrameBytes = 4u << 20;
constexpr uint64_t kMaxConstBytes = 64u << 20;
constexpr std::array kRegClasses = {RegClass::k32, RegClass::k64, RegClass::k128, RegClass::kPred};

using Flow = LowInstr::Flow;

class Layout {
 public:
  explicit Layout(LowFunction* low) : low_(*low), code_(*low->code) {}
  absl::Status Run();

 private:
  void FindJoins();  // reconvergence points
  absl::Status PlaceRegisters();
  absl::Status PlaceConstants();
  // Gives instructions their final addresses, with a join in front of each reconvergence point.
  void PlaceInstructions();
  // Sets the targets of an instruction of basic block `block`.
  void PlaceTargets(const LowInstr& low_in, uint32_t block, Instr* in);
  int32_t Place(int32_t operand) const;

  LowFunction& low_;
  FunctionCode& code_;
  FlowGraph graph_;
  std::vector<bool> join_at_;      // for each basic block
  std::vector<uint32_t> slot_;     // of each register, within its class
  uint64_t base_[4] = {};          // offset of each class's registers in the frame
  std::vector<uint32_t> address_;  // of each instruction
};

// The end of a kernel is no reconvergence point: threads that return just end.
void Layout::FindJoins() {
  const uint32_t exit = static_cast<uint32_t>(graph_.blocks.size()) - 1;
  join_at_.assign(graph_.blocks.size(), false);
  for (uint32_t b = 0; b < exit; ++b) {
    const Flow flow = low_.instrs[graph_.blocks[b].end - 1].flow;
    if (flow != Flow::kBranchCond && flow != Flow::kBranchIndex) continue;
    const uint32_t point = graph_.post_dominator[b];
    if (point == FlowGraph::kNone || (code_.is_entry && point == exit)) continue;
    join_at_[point] = true;
  }
}

absl::Status Layout::PlaceRegisters() {
  const std::vector<Interval> intervals = LiveIntervals(low_, graph_);
  slot_.resize(low_.vregs.size());
  uint64_t top = 0;
  uint32_t counts[4] = {};
  for (RegClass c : kRegClasses) {
    const uint32_t slots = AssignSlots(intervals, low_.vregs, c, &slot_);
    base_[static_cast<int>(c)] = top;
    counts[static_cast<int>(c)] = slots;
    top += uint64_t{slots} * BytesOf(c);
  }
  if (top > kMaxFrameBytes) return PtxError(low_.ast->line, "too many live registers");
  code_.frame_bytes = static_cast<uint32_t>((top + 63) / 64 * 64);
  code_.register_pressure = counts[static_cast<int>(RegClass::k32)] +
                            2 * counts[static_cast<int>(RegClass::k64)] +
                            4 * counts[static_cast<int>(RegClass::k128)];
  return absl::OkStatus();
}

absl::Status Layout::PlaceConstants() {
  uint64_t const_top = 0;
  for (RegClass c : kRegClasses) {
    for (ConstEntry& entry : code_.consts) {
      if (entry.reg_class != c) continue;
      entry.offset = static_cast<uint32_t>(const_top);
      const_top += BytesOf(c);
      if (const_top > kMaxConstBytes) return PtxError(low_.ast->line, "too many constants");
    }
  }
  code_.const_bytes = static_cast<uint32_t>(const_top);
  return absl::OkStatus();
}

int32_t Layout::Place(int32_t operand) const {
  if (operand == kNoOperand) return kNoOperand;
  if (operand < 0) {
    return static_cast<int32_t>(0x80000000u |
                                code_.consts[static_cast<size_t>(-1 - operand)].offset);
  }
  const RegClass c = low_.vregs[static_cast<size_t>(operand)];
  return static_cast<int32_t>(base_[static_cast<int>(c)] +
                              uint64_t{slot_[static_cast<size_t>(operand)]} * BytesOf(c));
}

void Layout::PlaceTargets(const LowInstr& low_in, uint32_t block, Instr* in) {
  const uint32_t point = graph_.post_dominator[block];
  const uint32_t join = point == FlowGraph::kNone || !join_at_[point]
                            ? kNoJoin
                            : address_[graph_.blocks[point].begin];
  switch (low_in.flow) {
    case Flow::kBranch:
      in->imm = address_[low_.labels[low_in.target]];
      break;
    case Flow::kBranchCond:
      in->imm = address_[low_.labels[low_in.target]];
      in->extra = join;
      break;
    case Flow::kBranchIndex:
      in->imm = low_in.target;
      in->extra = join;
      break;
    case Flow::kReturn:
      if (in->fn == ExecBranch) in->imm = address_.back();
      break;
    default:
      break;
  }
}

void Layout::PlaceInstructions() {
  const uint32_t count = static_cast<uint32_t>(low_.instrs.size());
  address_.resize(count);
  uint32_t next = 0;
  for (uint32_t i = 0; i < count; ++i) {
    address_[i] = next;  // of the join, if there is one, because branches go there
    const uint32_t block = graph_.block_of[i];
    if (block != FlowGraph::kNone && join_at_[block]) ++next;
    ++next;
  }
  code_.code.reserve(next);
  uint32_t block = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (graph_.block_of[i] != FlowGraph::kNone) {
      block = graph_.block_of[i];
      if (join_at_[block]) {
        Instr join;
        join.fn = ExecJoin;
        join.line = low_.instrs[i].in.line;
        join.flags = static_cast<uint8_t>(CostCounters::kControl << Instr::kClassShift);
        code_.code.push_back(join);
      }
    }
    LowInstr& low_in = low_.instrs[i];
    Instr in = low_in.in;
    in.d = Place(in.d);
    in.d2 = Place(in.d2);
    in.a = Place(in.a);
    in.b = Place(in.b);
    in.c = Place(in.c);
    in.e = Place(in.e);
    if (in.guard >= 0) in.guard = Place(in.guard);
    PlaceTargets(low_in, block, &in);
    code_.code.push_back(in);
  }
  for (const std::vector<uint32_t>& list : low_.target_lists) {
    std::vector<uint32_t>& table = code_.branch_tables.emplace_back();
    table.reserve(list.size());
    for (uint32_t t : list) table.push_back(address_[low_.labels[t]]);
  }
  code_.extras.reserve(low_.extras.size());
  for (int32_t o : low_.extras) code_.extras.push_back(Place(o));
}

absl::Status Layout::Run() {
  LowInstr end;
  end.in.fn = code_.is_entry ? ExecExit : ExecReturn;
  end.in.line = low_.instrs.empty() ? low_.ast->line : low_.instrs.back().in.line;
  low_.instrs.push_back(end);
  if (absl::Status status = BuildFlowGraph(low_, &graph_); !status.ok()) return status;
  FindJoins();
  if (absl::Status status = PlaceRegisters(); !status.ok()) return status;
  if (absl::Status status = PlaceConstants(); !status.ok()) return status;
  PlaceInstructions();
  return absl::OkStatus();
}

}  // namespace

absl::Status LayoutCode(LowFunction* low) { return Layout(low).Run(); }

}  // namespace detshare::soft::ptx
