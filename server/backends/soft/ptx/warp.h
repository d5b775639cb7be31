// The splits and joins of a warp; see unit.h for what they are.
#pragma once

#include "server/backends/soft/ptx/unit.h"

namespace detshare::soft::ptx {

// Adds a ready split that will run after those already there, or next when `next`. Returns its
// index.
int16_t AddSplit(Warp& warp, const Instr* pc, Frame* frame, uint32_t mask, int16_t join, bool next);
void RemoveSplit(Warp& warp, int16_t split);
// Puts the split at the end of the order.
void RotateSplit(Warp& warp, int16_t split);

// Lanes leave a join without reaching its point. Returns the parent.
int16_t LeaveJoin(Warp& warp, int16_t join, uint32_t lanes);

// The running split goes on with the lanes of its mask outside `taken`; these go to `target`.
void Diverge(Context& c, uint32_t taken, const Instr* target, const Instr* point);

// The lanes of the running split that are in `lanes` end. Ends the turn when none is left.
void ExitLanes(Context& c, uint32_t lanes);

// Saves the running split, which waits in `state` and goes on at `pc`.
void Suspend(Context& c, SplitState state, const Instr* pc);

// Lets lanes that wait at joins go on without the others.
void BreakJoins(Warp& warp);

// Releases what waits for the block barrier `barrier` when enough threads have come.
void CheckBarrier(Block& block, uint32_t barrier);
void CheckClusterBarrier(Unit& unit);

void ReleaseFrame(Warp& warp, Frame* frame);

}  // namespace detshare::soft::ptx
