#include "server/backends/soft/ptx/liveness.h"

namespace detshare::soft::ptx {
namespace {

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

// The registers that more than one block uses. Each has a number in sets of bits.
struct SharedRegisters {
  std::vector<int32_t> registers;
  std::vector<int32_t> bit;  // of each register, or -1
  size_t words = 0;          // of a set
};

// Makes the intervals cover every use and definition. Finds the registers whose values may pass
// between blocks.
SharedRegisters CoverOperands(const LowFunction& low, const FlowGraph& graph,
                              std::vector<Interval>* intervals) {
  const size_t count = low.vregs.size();
  constexpr uint32_t kUnseen = 0xffffffffu, kMany = 0xfffffffeu;
  std::vector<uint32_t> home(count, kUnseen);
  for (uint32_t b = 0; b < graph.blocks.size(); ++b) {
    for (uint32_t i = graph.blocks[b].begin; i < graph.blocks[b].end; ++i) {
      const bool guarded = low.instrs[i].in.guard >= 0;
      ForOperands(
          low, low.instrs[i],
          [&](int32_t v) {
            (*intervals)[v].Cover(2 * i);
            if (home[v] != b) home[v] = kMany;
          },
          [&](int32_t v) {
            (*intervals)[v].Cover(2 * i + 1);
            if (home[v] == kUnseen && !guarded) {
              home[v] = b;
            } else if (home[v] != b) {
              home[v] = kMany;
            }
          });
    }
  }
  SharedRegisters shared;
  shared.bit.assign(count, -1);
  for (size_t v = 0; v < count; ++v) {
    if (home[v] == kMany) {
      shared.bit[v] = static_cast<int32_t>(shared.registers.size());
      shared.registers.push_back(static_cast<int32_t>(v));
    }
  }
  shared.words = (shared.registers.size() + 63) / 64;
  return shared;
}

// Sets of shared registers, `words` for each block.
struct BlockSets {
  std::vector<uint64_t> use;  // used before any definition in the block
  std::vector<uint64_t> def;
  std::vector<uint64_t> in;   // live where the block begins
  std::vector<uint64_t> out;  // live where it ends
};

void FindUsesAndDefinitions(const LowFunction& low, const FlowGraph& graph,
                            const SharedRegisters& shared, BlockSets* sets) {
  for (uint32_t b = 0; b < graph.blocks.size(); ++b) {
    uint64_t* u = sets->use.data() + shared.words * b;
    uint64_t* d = sets->def.data() + shared.words * b;
    for (uint32_t i = graph.blocks[b].begin; i < graph.blocks[b].end; ++i) {
      const bool guarded = low.instrs[i].in.guard >= 0;
      ForOperands(
          low, low.instrs[i],
          [&](int32_t v) {
            const int32_t bit = shared.bit[v];
            if (bit < 0) return;
            const uint64_t m = uint64_t{1} << (bit % 64);
            if ((d[bit / 64] & m) == 0) u[bit / 64] |= m;
          },
          [&](int32_t v) {
            const int32_t bit = shared.bit[v];
            if (bit < 0 || guarded) return;
            d[bit / 64] |= uint64_t{1} << (bit % 64);
          });
    }
  }
}

// Returns false when it takes too many steps.
bool FlowBackwards(const FlowGraph& graph, size_t words, BlockSets* sets) {
  uint64_t work = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = static_cast<uint32_t>(graph.blocks.size()); b-- > 0;) {
      uint64_t* o = sets->out.data() + words * b;
      for (uint32_t s : graph.blocks[b].successors) {
        const uint64_t* si = sets->in.data() + words * s;
        for (size_t w = 0; w < words; ++w) o[w] |= si[w];
      }
      for (size_t w = 0; w < words; ++w) {
        const uint64_t value = sets->use[words * b + w] | (o[w] & ~sets->def[words * b + w]);
        if (value != sets->in[words * b + w]) {
          sets->in[words * b + w] = value;
          changed = true;
        }
      }
      work += words * (1 + graph.blocks[b].successors.size());
      if (work > 500'000'000) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Interval> LiveIntervals(const LowFunction& low, const FlowGraph& graph) {
  std::vector<Interval> intervals(low.vregs.size());
  const SharedRegisters shared = CoverOperands(low, graph, &intervals);
  if (shared.registers.empty()) return intervals;
  const size_t words = shared.words, size = words * graph.blocks.size();
  bool found = size <= (4u << 20);
  BlockSets sets;
  if (found) {
    for (auto* set : {&sets.use, &sets.def, &sets.in, &sets.out}) set->resize(size);
    FindUsesAndDefinitions(low, graph, shared, &sets);
    found = FlowBackwards(graph, words, &sets);
  }
  if (!found) {  // live everywhere
    for (int32_t v : shared.registers) {
      intervals[v].Cover(0);
      intervals[v].Cover(2 * static_cast<uint32_t>(low.instrs.size()));
    }
    return intervals;
  }
  auto cover = [&](const uint64_t* set, uint32_t position) {
    for (size_t w = 0; w < words; ++w) {
      for (uint64_t m = set[w]; m != 0; m &= m - 1) {
        const size_t bit = w * 64 + static_cast<size_t>(__builtin_ctzll(m));
        intervals[shared.registers[bit]].Cover(position);
      }
    }
  };
  for (uint32_t b = 0; b < graph.blocks.size(); ++b) {
    cover(sets.in.data() + words * b, 2 * graph.blocks[b].begin);
    cover(sets.out.data() + words * b, 2 * graph.blocks[b].end - 1);
  }
  return intervals;
}

}  // namespace detshare::soft::ptx
