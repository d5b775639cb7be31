#include "server/backends/soft/ptx/code_layout.h"

#include <algorithm>
#include <queue>

#include "server/backends/soft/ptx/parser.h"

namespace detshare::soft::ptx {
namespace {

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

template <class UseFn, class DefFn>
void ForOperands(const LowFunction& low, const LowInstr& low_in, UseFn use, DefFn def) {
  const Instr& in = low_in.in;
  for (int32_t o : {in.a, in.b, in.c, in.e}) {
    if (o >= 0 && o != kNoOperand) use(o);
  }
  if (in.guard >= 0) use(in.guard);
  for (uint32_t k = 0; k < in.count; ++k) {
    const int32_t o = low.extras[in.extra + k];
    if (o < 0 || o == kNoOperand) continue;
    if (k < low_in.extra_defs) {
      def(o);
    } else {
      use(o);
    }
  }
  if (in.d != kNoOperand) def(in.d);
  if (in.d2 != kNoOperand) def(in.d2);
}

// Where each register's value is needed. Registers that live in one block are found directly, the
// others by data flow.
std::vector<Interval> LiveIntervals(const LowFunction& low, const FlowGraph& graph) {
  const size_t count = low.vregs.size();
  const uint32_t block_count = static_cast<uint32_t>(graph.blocks.size());
  std::vector<Interval> intervals(count);
  constexpr uint32_t kUnseen = 0xffffffffu, kMany = 0xfffffffeu;
  std::vector<uint32_t> home(count, kUnseen);
  for (uint32_t b = 0; b < block_count; ++b) {
    for (uint32_t i = graph.blocks[b].begin; i < graph.blocks[b].end; ++i) {
      const bool guarded = low.instrs[i].in.guard >= 0;
      ForOperands(
          low, low.instrs[i],
          [&](int32_t v) {
            intervals[v].Cover(2 * i);
            if (home[v] != b) home[v] = kMany;
          },
          [&](int32_t v) {
            intervals[v].Cover(2 * i + 1);
            if (home[v] == kUnseen && !guarded) {
              home[v] = b;
            } else if (home[v] != b) {
              home[v] = kMany;
            }
          });
    }
  }
  std::vector<int32_t> shared;  // registers that need data flow
  std::vector<int32_t> bit(count, -1);
  for (size_t v = 0; v < count; ++v) {
    if (home[v] == kMany) {
      bit[v] = static_cast<int32_t>(shared.size());
      shared.push_back(static_cast<int32_t>(v));
    }
  }
  if (shared.empty()) return intervals;
  const size_t words = (shared.size() + 63) / 64;
  const uint32_t last = 2 * static_cast<uint32_t>(low.instrs.size());
  auto keep_everywhere = [&] {
    for (int32_t v : shared) {
      intervals[v].Cover(0);
      intervals[v].Cover(last);
    }
  };
  if (words * block_count > (4u << 20)) {
    keep_everywhere();
    return intervals;
  }
  std::vector<uint64_t> use(words * block_count), def(words * block_count), in(words * block_count),
      out(words * block_count);
  for (uint32_t b = 0; b < block_count; ++b) {
    uint64_t* u = use.data() + words * b;
    uint64_t* d = def.data() + words * b;
    for (uint32_t i = graph.blocks[b].begin; i < graph.blocks[b].end; ++i) {
      const bool guarded = low.instrs[i].in.guard >= 0;
      ForOperands(
          low, low.instrs[i],
          [&](int32_t v) {
            if (bit[v] < 0) return;
            const uint64_t m = uint64_t{1} << (bit[v] % 64);
            if ((d[bit[v] / 64] & m) == 0) u[bit[v] / 64] |= m;
          },
          [&](int32_t v) {
            if (bit[v] < 0 || guarded) return;
            d[bit[v] / 64] |= uint64_t{1} << (bit[v] % 64);
          });
    }
  }
  uint64_t work = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = block_count; b-- > 0;) {
      uint64_t* o = out.data() + words * b;
      for (uint32_t s : graph.blocks[b].successors) {
        const uint64_t* si = in.data() + words * s;
        for (size_t w = 0; w < words; ++w) o[w] |= si[w];
      }
      for (size_t w = 0; w < words; ++w) {
        const uint64_t value = use[words * b + w] | (o[w] & ~def[words * b + w]);
        if (value != in[words * b + w]) {
          in[words * b + w] = value;
          changed = true;
        }
      }
      work += words * (1 + graph.blocks[b].successors.size());
      if (work > 500'000'000) {
        keep_everywhere();
        return intervals;
      }
    }
  }
  for (uint32_t b = 0; b < block_count; ++b) {
    const FlowGraph::Block& block = graph.blocks[b];
    for (size_t w = 0; w < words; ++w) {
      for (uint64_t m = in [words * b + w]; m != 0; m &= m - 1) {
        intervals[shared[w * 64 + static_cast<size_t>(__builtin_ctzll(m))]].Cover(2 * block.begin);
      }
      for (uint64_t m = out[words * b + w]; m != 0; m &= m - 1) {
        intervals[shared[w * 64 + static_cast<size_t>(__builtin_ctzll(m))]].Cover(2 * block.end -
                                                                                  1);
      }
    }
  }
  return intervals;
}

// Linear scan: gives each register of a class a slot; registers whose intervals do not meet share
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

}  // namespace

absl::Status LayoutCode(LowFunction* low) {
  FunctionCode& code = *low->code;
  {
    LowInstr end;
    end.in.fn = code.is_entry ? ExecExit : ExecReturn;
    end.in.line = low->instrs.empty() ? low->ast->line : low->instrs.back().in.line;
    low->instrs.push_back(end);
  }
  FlowGraph graph;
  if (absl::Status status = BuildFlowGraph(*low, &graph); !status.ok()) return status;
  const uint32_t count = static_cast<uint32_t>(low->instrs.size());
  const uint32_t exit = static_cast<uint32_t>(graph.blocks.size()) - 1;
  using Flow = LowInstr::Flow;

  // Reconvergence points. Threads of a kernel that return just end: nobody waits for them at its
  // end.
  std::vector<bool> join_at(graph.blocks.size());
  for (uint32_t b = 0; b < exit; ++b) {
    const Flow flow = low->instrs[graph.blocks[b].end - 1].flow;
    if (flow != Flow::kBranchCond && flow != Flow::kBranchIndex) continue;
    const uint32_t point = graph.post_dominator[b];
    if (point == FlowGraph::kNone || (code.is_entry && point == exit)) continue;
    join_at[point] = true;
  }

  // Register places.
  const std::vector<Interval> intervals = LiveIntervals(*low, graph);
  std::vector<uint32_t> slot(low->vregs.size());
  uint64_t top = 0;
  uint64_t base[4] = {};
  uint32_t counts[4] = {};
  for (RegClass c : {RegClass::k32, RegClass::k64, RegClass::k128, RegClass::kPred}) {
    const uint32_t slots = AssignSlots(intervals, low->vregs, c, &slot);
    base[static_cast<int>(c)] = top;
    counts[static_cast<int>(c)] = slots;
    top += uint64_t{slots} * BytesOf(c);
  }
  if (top > kMaxFrameBytes) return PtxError(low->ast->line, "too many live registers");
  code.frame_bytes = static_cast<uint32_t>((top + 63) / 64 * 64);
  code.register_pressure = counts[static_cast<int>(RegClass::k32)] +
                           2 * counts[static_cast<int>(RegClass::k64)] +
                           4 * counts[static_cast<int>(RegClass::k128)];

  // Constants.
  uint64_t const_top = 0;
  for (RegClass c : {RegClass::k32, RegClass::k64, RegClass::k128, RegClass::kPred}) {
    for (ConstEntry& entry : code.consts) {
      if (entry.reg_class != c) continue;
      entry.offset = static_cast<uint32_t>(const_top);
      const_top += BytesOf(c);
      if (const_top > kMaxConstBytes) return PtxError(low->ast->line, "too many constants");
    }
  }
  code.const_bytes = static_cast<uint32_t>(const_top);

  auto place = [&](int32_t operand) -> int32_t {
    if (operand == kNoOperand) return kNoOperand;
    if (operand < 0) {
      return static_cast<int32_t>(0x80000000u |
                                  code.consts[static_cast<size_t>(-1 - operand)].offset);
    }
    const RegClass c = low->vregs[static_cast<size_t>(operand)];
    return static_cast<int32_t>(base[static_cast<int>(c)] +
                                uint64_t{slot[static_cast<size_t>(operand)]} * BytesOf(c));
  };

  // Final addresses of instructions, with a join in front of each reconvergence point.
  std::vector<uint32_t> address(count);
  uint32_t next = 0;
  for (uint32_t i = 0; i < count; ++i) {
    address[i] = next;  // of the join, when there is one: branches go there
    const uint32_t block = graph.block_of[i];
    if (block != FlowGraph::kNone && join_at[block]) ++next;
    ++next;
  }
  code.code.reserve(next);
  uint32_t block = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (graph.block_of[i] != FlowGraph::kNone) {
      block = graph.block_of[i];
      if (join_at[block]) {
        Instr join;
        join.fn = ExecJoin;
        join.line = low->instrs[i].in.line;
        join.flags = static_cast<uint8_t>(CostCounters::kControl << Instr::kClassShift);
        code.code.push_back(join);
      }
    }
    LowInstr& low_in = low->instrs[i];
    Instr in = low_in.in;
    in.d = place(in.d);
    in.d2 = place(in.d2);
    in.a = place(in.a);
    in.b = place(in.b);
    in.c = place(in.c);
    in.e = place(in.e);
    if (in.guard >= 0) in.guard = place(in.guard);
    const uint32_t point = graph.post_dominator[block];
    const uint32_t join =
        point == FlowGraph::kNone || !join_at[point] ? kNoJoin : address[graph.blocks[point].begin];
    switch (low_in.flow) {
      case Flow::kBranch:
        in.imm = address[low->labels[low_in.target]];
        break;
      case Flow::kBranchCond:
        in.imm = address[low->labels[low_in.target]];
        in.extra = join;
        break;
      case Flow::kBranchIndex: {
        in.imm = static_cast<int64_t>(code.branch_tables.size());
        in.extra = join;
        code.branch_tables.emplace_back();
        for (uint32_t t : low_in.targets)
          code.branch_tables.back().push_back(address[low->labels[t]]);
        break;
      }
      case Flow::kReturn:
        if (in.fn == ExecBranch) in.imm = address[count - 1];
        break;
      default:
        break;
    }
    code.code.push_back(in);
  }
  code.extras.reserve(low->extras.size());
  for (int32_t o : low->extras) code.extras.push_back(place(o));
  return absl::OkStatus();
}

}  // namespace detshare::soft::ptx
