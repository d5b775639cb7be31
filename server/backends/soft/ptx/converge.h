// Lets diverged lanes wait for each other at instructions with a member mask.
#pragma once

#include <array>

#include "absl/types/span.h"
#include "server/backends/soft/ptx/warp.h"

namespace detshare::soft::ptx {

// Runs f(lanes, group, waiting) for each group of lanes with the same member mask, once all members
// of the mask have come: lanes of diverged splits wait for each other. `lanes` is the group and the
// lanes of the splits `waiting`. They wait at instructions for which meets(split) is true.
template <class Meets, class F>
void ConvergeSplits(Context& c, const Instr& in, uint32_t mask, Meets meets, F f) {
  if (in.e == kNoOperand) return f(mask, mask, {});
  Warp& warp = *c.warp;
  const uint32_t* members = c.Src<uint32_t>(in.e);
  // Mostly all lanes wait for all. The compiler compares them in vectors.
  uint32_t missing = ~mask;
  for (uint32_t lane = 0; lane < kLanes; ++lane) missing |= ~members[lane];
  if (missing == 0) return f(mask, mask, {});
  uint32_t left = mask;
  while (left != 0) {
    const uint32_t wanted = members[FirstLane(left)];
    uint32_t group = 0;
    ForEachLane(left, [&](uint32_t lane) {
      if (members[lane] == wanted) group |= 1u << lane;
    });
    left &= ~group;
    const uint32_t need = (wanted | group) & warp.alive;
    uint32_t here = group;
    std::array<uint8_t, 33> waiting;
    size_t waiting_count = 0;
    if ((need & ~here) != 0) {
      for (uint8_t i = 0; i < warp.split_count; ++i) {
        Split& s = warp.splits[warp.order[i]];
        if (s.state != SplitState::kWarpSync || s.sync_mask != wanted || !meets(s)) continue;
        here |= s.mask;
        waiting[waiting_count++] = warp.order[i];
      }
    }
    if ((need & ~here) == 0) {
      f(here, group, absl::MakeConstSpan(waiting.data(), waiting_count));
      for (size_t i = 0; i < waiting_count; ++i) {
        Split& s = warp.splits[waiting[i]];
        s.state = SplitState::kReady;
        ++s.pc;
      }
      continue;
    }
    if (group == c.mask) {
      c.warp->splits[static_cast<size_t>(c.split)].sync_mask = wanted;
      return Suspend(c, SplitState::kWarpSync, &in);
    }
    // These lanes wait as a split of their own.
    const int16_t own = c.split;
    c.mask &= ~group;
    warp.splits[static_cast<size_t>(own)].mask = c.mask;
    const int16_t fresh =
        AddSplit(warp, &in, c.frame, group, warp.splits[static_cast<size_t>(own)].join, false);
    warp.splits[static_cast<size_t>(fresh)].state = SplitState::kWarpSync;
    warp.splits[static_cast<size_t>(fresh)].sync_mask = wanted;
  }
}

// Runs f(lanes) in the same way. Without `same_pc` the lanes may wait at different instructions with
// the same handler.
template <class F>
void Converge(Context& c, const Instr& in, uint32_t mask, bool same_pc, F f) {
  ConvergeSplits(
      c, in, mask,
      [&](const Split& s) {
        return same_pc ? s.pc == &in && s.frame == c.frame : s.pc->fn == in.fn;
      },
      [&](uint32_t lanes, uint32_t, absl::Span<const uint8_t>) { f(lanes); });
}

}  // namespace detshare::soft::ptx
