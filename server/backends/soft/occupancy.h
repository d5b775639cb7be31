// How many blocks of a kernel fit on the SMs of the software GPU. The arithmetic is that of the
// toolkit's cuda_occupancy.h.
#pragma once

#include <cstdint>
#include <vector>

#include "coroutine_runtime/device.h"

namespace detshare::soft {

// What of a kernel decides its occupancy.
struct KernelResources {
  int registers_per_thread = 0;
  uint64_t static_shared_bytes = 0;
  uint64_t largest_dynamic_shared_bytes = 0;
  int max_threads_per_block = 1024;
  int carveout = -1;  // CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
};

// Blocks that are resident on one SM at the same time; 0 when not even one fits.
int MaxActiveBlocks(const DeviceProperties& properties, const KernelResources& kernel,
                    int block_size, uint64_t dynamic_shared_bytes);

// The most dynamic shared memory with which `blocks` still fit on an SM.
uint64_t AvailableDynamicShared(const DeviceProperties& properties, const KernelResources& kernel,
                                int blocks, int block_size);

// Clusters of `cluster_blocks` that are resident at the same time on SMs [first, first + count): a
// cluster lies within a GPC.
int MaxActiveClusters(const DeviceProperties& properties, int first_sm, int sm_count,
                      int blocks_per_sm, int cluster_blocks);

}  // namespace detshare::soft
