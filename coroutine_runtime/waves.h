// How many blocks of a grid run one after the other on an SM.
#pragma once

#include "coroutine_runtime/device.h"

namespace detshare {

// At least so many waves of blocks a launch takes on the whole device, 1 or more: the blocks of the
// grid over those that have room at a time, as far as threads, registers, shared memory and block
// slots limit them (CUDA C++ Programming Guide, "Multiprocessor Level"). 1 for grids whose blocks
// must run together. Any thread; does not ask the device.
uint64_t WavesOf(const DeviceProperties& properties, const KernelInfo& kernel,
                 const LaunchShape& shape);

}  // namespace detshare
