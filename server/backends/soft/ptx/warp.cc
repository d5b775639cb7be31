#include "server/backends/soft/ptx/warp.h"

#include <algorithm>

#include "server/backends/soft/ptx/control_ops.h"

namespace detshare::soft::ptx {

int16_t AddSplit(Warp& warp, const Instr* pc, Frame* frame, uint32_t mask, int16_t join,
                 bool next) {
  int16_t index = 0;
  while (warp.splits[static_cast<size_t>(index)].state != SplitState::kFree)
    ++index;  // 33 places, at most 32 lanes
  Split& s = warp.splits[static_cast<size_t>(index)];
  s = Split{};
  s.pc = pc;
  s.frame = frame;
  s.mask = mask;
  s.join = join;
  s.state = SplitState::kReady;
  if (next) {
    for (uint8_t i = warp.split_count; i > 0; --i) warp.order[i] = warp.order[i - 1u];
    warp.order[0] = static_cast<uint8_t>(index);
  } else {
    warp.order[warp.split_count] = static_cast<uint8_t>(index);
  }
  ++warp.split_count;
  return index;
}

void RemoveSplit(Warp& warp, int16_t split) {
  uint8_t kept = 0;
  for (uint8_t i = 0; i < warp.split_count; ++i) {
    if (warp.order[i] != split) warp.order[kept++] = warp.order[i];
  }
  warp.split_count = kept;
  warp.splits[static_cast<size_t>(split)].state = SplitState::kFree;
}

void RotateSplit(Warp& warp, int16_t split) {
  uint8_t kept = 0;
  for (uint8_t i = 0; i < warp.split_count; ++i) {
    if (warp.order[i] != split) warp.order[kept++] = warp.order[i];
  }
  warp.order[kept] = static_cast<uint8_t>(split);
}

int16_t LeaveJoin(Warp& warp, int16_t join, uint32_t lanes) {
  Join& j = warp.joins[static_cast<size_t>(join)];
  const int16_t parent = j.parent;
  j.mask &= ~lanes;
  if (j.mask == j.arrived) {
    const uint32_t arrived = j.arrived;
    j.used = false;
    if (arrived != 0) AddSplit(warp, j.point, j.frame, arrived, parent, true);
  }
  return parent;
}

void Diverge(Context& c, uint32_t taken, const Instr* target, const Instr* point) {
  Warp& warp = *c.warp;
  Split& s = warp.splits[static_cast<size_t>(c.split)];
  if (point != nullptr) {
    const bool same = s.join >= 0 && warp.joins[static_cast<size_t>(s.join)].point == point &&
                      warp.joins[static_cast<size_t>(s.join)].frame == c.frame;
    if (!same) {
      for (size_t i = 0; i < warp.joins.size(); ++i) {
        Join& j = warp.joins[i];
        if (j.used) continue;
        j = Join{};
        j.used = true;
        j.point = point;
        j.frame = c.frame;
        j.mask = c.mask;
        j.parent = s.join;
        s.join = static_cast<int16_t>(i);
        break;
      }
    }
    // Lanes that branch straight to the reconvergence point wait there without a split.
    if (target == point && s.join >= 0) {
      Join& j = warp.joins[static_cast<size_t>(s.join)];
      if (j.point == point && j.frame == c.frame && !j.broken) {
        j.arrived |= taken;
        c.mask &= ~taken;
        s.mask = c.mask;
        warp.polls = 0;
        warp.steps_since_arrival = 0;
        return;
      }
    }
  }
  c.mask &= ~taken;
  s.mask = c.mask;
  AddSplit(warp, target, c.frame, taken, s.join, false);
  // The new split runs next after the running split, before splits that wait for other reasons.
  for (uint8_t i = static_cast<uint8_t>(warp.split_count - 1); i > 1; --i)
    std::swap(warp.order[i], warp.order[i - 1u]);
}

void ReleaseFrame(Warp& warp, Frame* frame) {
  if (frame == &warp.base) return;
  warp.free_frames.push_back(frame);
}

void ExitLanes(Context& c, uint32_t lanes) {
  Warp& warp = *c.warp;
  Block& block = *c.block;
  Split& s = warp.splits[static_cast<size_t>(c.split)];
  c.mask &= ~lanes;
  s.mask = c.mask;
  warp.alive &= ~lanes;
  block.threads_alive -= LaneCount(lanes);
  const int16_t join = s.join;
  Frame* const frame = c.frame;
  if (c.mask == 0) {
    RemoveSplit(warp, c.split);
    c.split = -1;
    EndTurn(c);
  }
  for (int16_t j = join; j >= 0;) j = LeaveJoin(warp, j, lanes);
  for (Frame* f = frame; f != nullptr;) {
    Frame* const caller = f->caller;
    f->lanes &= ~lanes;
    if (f->lanes == 0) ReleaseFrame(warp, f);
    f = caller;
  }
  // Splits that wait for these lanes check again.
  for (uint8_t i = 0; i < warp.split_count; ++i) {
    Split& other = warp.splits[warp.order[i]];
    if (other.state == SplitState::kWarpSync) other.state = SplitState::kReady;
  }
  for (uint32_t b = 0; b < block.barriers.size(); ++b) {
    if (block.barriers[b].arrived != 0) CheckBarrier(block, b);
  }
  // The cluster's barrier waits for all living threads, so it no longer counts these.
  block.unit->cluster_arrived -= LaneCount(warp.cluster_arrived & lanes);
  warp.cluster_arrived &= ~lanes;
  CheckClusterBarrier(*block.unit);
}

void Suspend(Context& c, SplitState state, const Instr* pc) {
  Split& s = c.warp->splits[static_cast<size_t>(c.split)];
  s.pc = pc;
  s.mask = c.mask;
  s.state = state;
  c.split = -1;
  EndTurn(c);
}

void BreakJoins(Warp& warp) {
  warp.polls = 0;
  warp.steps_since_arrival = 0;
  for (Join& j : warp.joins) {
    if (!j.used || j.arrived == 0) continue;
    const uint32_t arrived = j.arrived;
    j.arrived = 0;
    j.mask &= ~arrived;
    j.broken = true;
    AddSplit(warp, j.point, j.frame, arrived, j.parent, false);
    if (j.mask == 0) j.used = false;
  }
}

void CheckBarrier(Block& block, uint32_t barrier) {
  Barrier& b = block.barriers[barrier];
  if (b.arrived == 0) return;
  if (b.arrived < (b.expected != 0 ? b.expected : block.threads_alive)) return;
  const Barrier done = b;
  b = Barrier{};
  ++block.unit->counters.barriers;
  for (Warp& warp : block.warps) {
    for (uint8_t i = 0; i < warp.split_count; ++i) {
      Split& s = warp.splits[warp.order[i]];
      if (s.state != SplitState::kBarrier || s.barrier != barrier) continue;
      s.state = SplitState::kReady;
      const Instr& in = s.pc[-1];
      const uint32_t kind = in.aux & BarrierAux::kKindMask;
      if (kind == BarrierAux::kRedPopc) {
        uint32_t* d = reinterpret_cast<uint32_t*>(s.frame->regs + in.d);
        ForEachLane(s.mask, [&](uint32_t lane) { d[lane] = done.popc; });
      } else if (kind == BarrierAux::kRedAnd || kind == BarrierAux::kRedOr) {
        uint32_t* p = reinterpret_cast<uint32_t*>(s.frame->regs + in.d);
        const bool value = kind == BarrierAux::kRedAnd ? done.all : done.any;
        *p = (*p & ~s.mask) | (value ? s.mask : 0);
      }
    }
  }
}

void CheckClusterBarrier(Unit& unit) {
  if (unit.cluster_arrived == 0) return;
  uint32_t alive = 0;
  for (const Block& block : unit.blocks) alive += block.threads_alive;
  if (unit.cluster_arrived < alive) return;
  unit.cluster_arrived = 0;
  ++unit.cluster_generation;
  for (Block& block : unit.blocks) {
    for (Warp& warp : block.warps) {
      warp.cluster_arrived = 0;
      for (uint8_t i = 0; i < warp.split_count; ++i) {
        Split& s = warp.splits[warp.order[i]];
        if (s.state == SplitState::kClusterBarrier) s.state = SplitState::kReady;
      }
    }
  }
}

}  // namespace detshare::soft::ptx
