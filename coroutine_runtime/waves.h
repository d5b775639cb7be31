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

// Returns whether the launch needs another wave if one block of it fewer fits at a time. True for
// grids whose blocks must run together.
bool NeedsEveryPlace(const DeviceProperties& properties, const KernelInfo& kernel,
                     const LaunchShape& shape);

}  // namespace detshare
