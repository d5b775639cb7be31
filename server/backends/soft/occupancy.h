// Computes how many blocks of a kernel fit on the SMs of the software GPU, with the arithmetic of
// the CUDA toolkit's cuda_occupancy.h.
#pragma once

#include <cstdint>
#include <vector>

#include "coroutine_runtime/device.h"

namespace detshare::soft {

// The properties of a kernel that decide its occupancy.
struct KernelResources {
  int registers_per_thread = 0;
  uint64_t static_shared_bytes = 0;
  uint64_t largest_dynamic_shared_bytes = 0;
  int max_threads_per_block = 1024;
  int carveout = -1;  // CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
};

// The number of blocks that are resident on one SM at the same time; 0 when no block fits.
int MaxActiveBlocks(const DeviceProperties& properties, const KernelResources& kernel,
                    int block_size, uint64_t dynamic_shared_bytes);

// The most registers per thread with which at least `blocks` blocks of `block_size` threads fit on an
// SM. If the SM has not the threads for so many blocks: with which one block fits.
int MostRegisters(const DeviceProperties& properties, int block_size, int blocks);

// The largest block, in whole warps, of a kernel that uses `registers` registers per thread.
int LargestBlock(const DeviceProperties& properties, int registers);

// The largest dynamic shared memory, in bytes, with which `blocks` blocks still fit on an SM.
uint64_t AvailableDynamicShared(const DeviceProperties& properties, const KernelResources& kernel,
                                int blocks, int block_size);

// The number of clusters of `cluster_blocks` blocks that are resident at the same time on SMs
// [first_sm, first_sm + sm_count). A cluster lies within a GPC.
int MaxActiveClusters(const DeviceProperties& properties, int first_sm, int sm_count,
                      int blocks_per_sm, int cluster_blocks);

}  // namespace detshare::soft
