// Branches, joins, calls, barriers.
#include <cstdint>
#include <cstring>
#include <vector>

#include "server/backends/soft/ptx/builtins.h"
#include "server/backends/soft/ptx/control_ops.h"
#include "server/backends/soft/ptx/converge.h"
#include "server/backends/soft/ptx/warp.h"

namespace detshare::soft::ptx {
namespace {

const Instr* At(const Context& c, uint64_t index) { return c.frame->function->code.data() + index; }
const Instr* Point(const Context& c, const Instr& in) {
  return in.extra == kNoJoin ? nullptr : At(c, in.extra);
}

constexpr size_t kMaxFrameBytesPerUnit = size_t{256} << 20;

Frame* NewFrame(Context& c, const FunctionCode& function) {
  Warp& warp = *c.warp;
  const size_t need = function.frame_bytes + size_t{function.param_area_bytes} * kLanes;
  if (warp.free_frames.empty()) {
    warp.frames.push_back(std::make_unique<Frame>());
    warp.free_frames.push_back(warp.frames.back().get());
  }
  Frame* frame = warp.free_frames.back();
  if (frame->storage_bytes < need || frame->storage == nullptr) {
    if (c.unit->frame_bytes + need > kMaxFrameBytesPerUnit) return nullptr;
    frame->storage = AllocateAligned(need);
    if (frame->storage == nullptr) return nullptr;
    c.unit->frame_bytes += need - frame->storage_bytes;
    frame->storage_bytes = need;
  }
  frame->regs = frame->storage.get();
  frame->params = frame->storage.get() + function.frame_bytes;
  warp.free_frames.pop_back();
  return frame;
}

void CopyParam(const uint8_t* from, uint32_t from_stride, const ParamPlace& a, uint8_t* to,
               uint32_t to_stride, const ParamPlace& b, uint32_t mask) {
  const uint32_t size = a.size < b.size ? a.size : b.size;
  if (size == 0) return;
  ForEachLane(mask, [&](uint32_t lane) {
    std::memcpy(to + size_t{to_stride} * lane + b.offset,
                from + size_t{from_stride} * lane + a.offset, size);
  });
}

void EnterFunction(Context& c, const Instr& in, const CallSite& call, uint32_t callee) {
  const PreparedLaunch& launch = *c.unit->launch;
  const FunctionCode& function = launch.module->functions[callee];
  const uint32_t lane = FirstLane(c.mask);
  const uint32_t base = (c.frame->local_top + 15) / 16 * 16;
  if (c.frame->depth >= 1024 + c.stack_bytes / 8 || function.local_bytes > c.stack_bytes ||
      base > c.stack_bytes - function.local_bytes) {
    return RaiseFault(c, in, FaultKind::kStackOverflow, 0, lane);
  }
  Frame* frame = NewFrame(c, function);
  if (frame == nullptr) return RaiseFault(c, in, FaultKind::kStackOverflow, 0, lane);
  frame->function = &function;
  frame->consts = launch.executable->const_pools[callee].get();
  frame->caller = c.frame;
  frame->return_pc = c.pc;
  frame->call = &call;
  frame->lanes = c.mask;
  frame->local_base = base;
  frame->local_top = base + function.local_bytes;
  frame->depth = c.frame->depth + 1;
  for (size_t i = 0; i < call.args.size() && i < function.params.size(); ++i) {
    CopyParam(c.frame->params, c.frame->function->param_area_bytes, call.args[i], frame->params,
              function.param_area_bytes, function.params[i], c.mask);
  }
  c.frame = frame;
  c.regs = frame->regs;
  c.consts = frame->consts;
  c.pc = function.code.data();
  c.warp->splits[static_cast<size_t>(c.split)].frame = frame;
}

}  // namespace

void ExecNop(Context&, const Instr&, uint32_t) {}

void ExecBranch(Context& c, const Instr& in, uint32_t) {
  c.pc = At(c, static_cast<uint64_t>(in.imm));
}

void ExecBranchCond(Context& c, const Instr& in, uint32_t mask) {
  uint32_t taken = c.Pred(in.a);
  if ((in.aux & 1) != 0) taken = ~taken;
  taken &= mask;
  const Instr* target = At(c, static_cast<uint64_t>(in.imm));
  if (taken == mask) {
    c.pc = target;
  } else if (taken != 0) {
    const Instr* point = Point(c, in);
    if (c.pc == point) {
      // The lanes that fall through are at the join already. They wait there, and the other lanes
      // run.
      Diverge(c, mask & ~taken, c.pc, point);
      c.pc = target;
    } else {
      Diverge(c, taken, target, point);
    }
  }
}

void ExecBranchIndex(Context& c, const Instr& in, uint32_t mask) {
  const std::vector<uint32_t>& table =
      c.frame->function->branch_tables[static_cast<size_t>(in.imm)];
  const uint32_t* index = c.Src<uint32_t>(in.a);
  uint32_t left = mask;
  while (left != 0) {
    const uint32_t first = FirstLane(left);
    if (index[first] >= table.size())
      return RaiseFault(c, in, FaultKind::kInvalidPc, index[first], first);
    const uint32_t target = table[index[first]];
    uint32_t group = 0;
    ForEachLane(left, [&](uint32_t lane) {
      if (index[lane] < table.size() && table[index[lane]] == target) group |= 1u << lane;
    });
    left &= ~group;
    if (left == 0) {
      c.pc = At(c, target);
    } else {
      Diverge(c, group, At(c, target), Point(c, in));
    }
  }
}

void ExecJoin(Context& c, const Instr& in, uint32_t) {
  Warp& warp = *c.warp;
  Split& s = warp.splits[static_cast<size_t>(c.split)];
  while (s.join >= 0) {
    Join& j = warp.joins[static_cast<size_t>(s.join)];
    if (j.point != &in || j.frame != c.frame) return;
    warp.polls = 0;
    warp.steps_since_arrival = 0;
    if (j.broken) {
      s.join = LeaveJoin(warp, s.join, c.mask);
      continue;
    }
    j.arrived |= c.mask;
    if (j.arrived != j.mask) {
      RemoveSplit(warp, c.split);
      c.split = -1;
      EndTurn(c);
      return;
    }
    c.mask = j.arrived;
    s.mask = c.mask;
    s.join = j.parent;
    j.used = false;
  }
}

void ExecCall(Context& c, const Instr& in, uint32_t mask) {
  const CallSite& call = c.frame->function->calls[static_cast<size_t>(in.imm)];
  if (call.builtin != Builtin::kNone) return ExecBuiltin(c, in, call, mask);
  uint32_t callee = static_cast<uint32_t>(call.callee);
  if (in.a != kNoOperand) {
    const uint64_t* address = c.Src<uint64_t>(in.a);
    const uint32_t first = FirstLane(mask);
    const uint64_t target = address[first];
    const uint64_t index = (target - kFunctionWindow) / kFunctionStride - 1;
    const ModuleCode& module = *c.unit->launch->module;
    if (target < kFunctionWindow + kFunctionStride || target % kFunctionStride != 0 ||
        index >= module.functions.size() || module.functions[index].is_entry) {
      return RaiseFault(c, in, FaultKind::kInvalidPc, target, first);
    }
    uint32_t others = 0;
    ForEachLane(mask, [&](uint32_t lane) {
      if (address[lane] != target) others |= 1u << lane;
    });
    // The other lanes execute the call again. All lanes meet at the join behind the call.
    if (others != 0) Diverge(c, others, &in, c.pc);
    callee = static_cast<uint32_t>(index);
  }
  EnterFunction(c, in, call, callee);
}

void ExecReturn(Context& c, const Instr&, uint32_t mask) {
  Warp& warp = *c.warp;
  Split& s = warp.splits[static_cast<size_t>(c.split)];
  Frame* frame = c.frame;
  while (s.join >= 0 && warp.joins[static_cast<size_t>(s.join)].frame == frame)
    s.join = LeaveJoin(warp, s.join, mask);
  Frame* caller = frame->caller;
  const CallSite& call = *frame->call;
  for (size_t i = 0; i < call.returns.size() && i < frame->function->returns.size(); ++i) {
    CopyParam(frame->params, frame->function->param_area_bytes, frame->function->returns[i],
              caller->params, caller->function->param_area_bytes, call.returns[i], mask);
  }
  c.pc = frame->return_pc;
  c.frame = caller;
  c.regs = caller->regs;
  c.consts = caller->consts;
  s.frame = caller;
  frame->lanes &= ~mask;
  if (frame->lanes == 0) ReleaseFrame(warp, frame);
}

void ExecExit(Context& c, const Instr&, uint32_t mask) { ExitLanes(c, mask); }

void ExecTrap(Context& c, const Instr& in, uint32_t mask) {
  RaiseFault(c, in, FaultKind::kTrap, 0, FirstLane(mask));
}

void ExecUnsupported(Context& c, const Instr& in, uint32_t mask) {
  RaiseFault(c, in, FaultKind::kUnsupportedInstruction, 0, FirstLane(mask));
}

namespace {

bool IsArrival(const Instr& in) { return (in.aux & BarrierAux::kKindMask) == BarrierAux::kArrive; }

// Adds the predicates of `lanes` to the reduction of a barrier.
void CombinePredicates(const Instr& in, const Frame& frame, uint32_t lanes, Barrier* b) {
  if ((in.aux & BarrierAux::kKindMask) < BarrierAux::kRedPopc) return;
  uint32_t p;
  std::memcpy(&p, (in.c < 0 ? frame.consts : frame.regs) + (in.c & INT32_MAX), sizeof(p));
  if ((in.aux & BarrierAux::kPredNegated) != 0) p = ~p;
  p &= lanes;
  b->popc += LaneCount(p);
  b->all = b->all && p == lanes;
  b->any = b->any || p != 0;
}

// Returns the splits that wait in front of barrier `id` for the other lanes of their warp.
std::vector<Split*> SplitsBefore(Warp& warp, uint32_t id) {
  std::vector<Split*> found;
  for (uint8_t i = 0; i < warp.split_count; ++i) {
    Split& s = warp.splits[warp.order[i]];
    if (s.state == SplitState::kWarpSync && s.pc->fn == ExecBarrier && s.barrier == id)
      found.push_back(&s);
  }
  return found;
}

}  // namespace

void ExecBarrier(Context& c, const Instr& in, uint32_t mask) {
  const uint32_t* ids = c.Src<uint32_t>(in.a);
  const uint32_t first = FirstLane(mask);
  const uint32_t id = ids[first];
  uint32_t others = 0;
  ForEachLane(mask, [&](uint32_t lane) {
    if (ids[lane] != id) others |= 1u << lane;
  });
  if (others != 0) {
    Diverge(c, others, &in, nullptr);
    mask &= ~others;
  }
  Block& block = *c.block;
  if (id >= block.barriers.size())
    return RaiseFault(c, in, FaultKind::kIllegalInstruction, id, first);
  Barrier& b = block.barriers[id];
  const uint32_t count = in.b == kNoOperand ? 0 : c.Src<uint32_t>(in.b)[first];
  if (count % kLanes != 0) return RaiseFault(c, in, FaultKind::kIllegalInstruction, count, first);
  Warp& warp = *c.warp;
  Split& running = warp.splits[static_cast<size_t>(c.split)];
  running.barrier = static_cast<uint8_t>(id);
  if (count == 0) {
    b.arrived += LaneCount(mask);
  } else {
    // Such a barrier counts whole warps, even if the last warp has fewer threads. So the lanes of a
    // warp come together first, from whatever branches.
    const std::vector<Split*> waiting = SplitsBefore(warp, id);
    uint32_t here = mask;
    for (const Split* s : waiting) here |= s->mask;
    if ((warp.alive & ~here) != 0) {
      running.sync_mask = kFullMask;
      return Suspend(c, SplitState::kWarpSync, &in);
    }
    b.expected = count;
    b.arrived += kLanes;
    for (Split* s : waiting) {
      CombinePredicates(*s->pc, *s->frame, s->mask, &b);
      s->state = IsArrival(*s->pc) ? SplitState::kReady : SplitState::kBarrier;
      ++s->pc;
    }
  }
  CombinePredicates(in, *c.frame, mask, &b);
  if (!IsArrival(in)) Suspend(c, SplitState::kBarrier, c.pc);
  CheckBarrier(block, id);
}

// The lanes of a warp arrive together, as on the hardware, also from different branches. So none of
// them is a phase ahead of the others.
void ExecClusterArrive(Context& c, const Instr& in, uint32_t mask) {
  Converge(c, in, mask, /*same_pc=*/false, [&](uint32_t lanes) {
    c.warp->cluster_phase = c.unit->cluster_generation;
    c.unit->cluster_arrived += LaneCount(lanes & ~c.warp->cluster_arrived);
    c.warp->cluster_arrived |= lanes;
    CheckClusterBarrier(*c.unit);
  });
}

void ExecClusterWait(Context& c, const Instr&, uint32_t) {
  if (c.unit->cluster_generation == c.warp->cluster_phase)
    Suspend(c, SplitState::kClusterBarrier, c.pc);
}

}  // namespace detshare::soft::ptx
