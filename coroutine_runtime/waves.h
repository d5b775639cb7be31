// The number of blocks of a grid that run one after the other on an SM.
#pragma once

#include "coroutine_runtime/device.h"

namespace detshare {

// Returns the minimum number of waves of blocks of a launch on the whole device, 1 or more. That is
// the grid's blocks over the blocks that fit at a time, limited by threads, registers, shared
// memory and block slots (CUDA C++ Programming Guide, "Multiprocessor Level"). 1 for grids whose
// blocks must run together. Threading: any thread. Does not ask the device.
uint64_t WavesOf(const DeviceProperties& properties, const KernelInfo& kernel,
                 const LaunchShape& shape);

// Returns whether the launch needs another wave, or begins later, while a hold (GroupHold) is on one SM: that
// is so if the hold takes the place of a block, and the grid needs every place. True if a hold takes a place
// and blocks must run together.
bool DelayedByHold(const DeviceProperties& properties, const KernelInfo& kernel,
                   const LaunchShape& shape);

}  // namespace detshare
