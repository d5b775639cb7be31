// The splits and joins of a warp, which unit.h explains.
#pragma once

#include "server/backends/soft/ptx/unit.h"

namespace detshare::soft::ptx {

// Adds a ready split. It runs after the existing splits; with `next` it runs next. Returns its
// index.
int16_t AddSplit(Warp& warp, const Instr* pc, Frame* frame, uint32_t mask, int16_t join, bool next);
void RemoveSplit(Warp& warp, int16_t split);
// Puts the split at the end of the order.
void RotateSplit(Warp& warp, int16_t split);

// Removes lanes from a join whose point they will not reach. Returns the join's parent.
int16_t LeaveJoin(Warp& warp, int16_t join, uint32_t lanes);

// Moves the lanes in `taken` from the running split to a new split, which begins at `target`.
// `point` is where the two splits join.
void Diverge(Context& c, uint32_t taken, const Instr* target, const Instr* point);

// Ends those lanes of the running split that are in `lanes`. Ends the turn when no lane is left.
void ExitLanes(Context& c, uint32_t lanes);

// Saves the running split. It waits in `state` and later goes on at `pc`.
void Suspend(Context& c, SplitState state, const Instr* pc);

// Lets lanes that wait at joins go on without the others.
void BreakJoins(Warp& warp);

// Releases the splits that wait for the block barrier `barrier` when enough threads have come.
void CheckBarrier(Block& block, uint32_t barrier);
void CheckClusterBarrier(Unit& unit);

void ReleaseFrame(Warp& warp, Frame* frame);

}  // namespace detshare::soft::ptx
