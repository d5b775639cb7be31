// Occupancy queries: how many blocks or clusters fit on the device. Transport: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

struct cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags {
  uint64_t dynamic_shared_bytes;
  KernelId kernel;
  int32_t block_size;
  uint32_t flags;
  uint32_t reserved;
};
struct cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_Reply {
  int32_t blocks;
  uint32_t reserved;
};

struct cuOccupancyAvailableDynamicSMemPerBlock {
  KernelId kernel;
  int32_t blocks;
  int32_t block_size;
  uint32_t reserved;
};
struct cuOccupancyAvailableDynamicSMemPerBlock_Reply {
  uint64_t bytes;
};

struct cuOccupancyMaxPotentialClusterSize {
  KernelId kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t dynamic_shared_bytes;
};
struct cuOccupancyMaxPotentialClusterSize_Reply {
  int32_t cluster_size;
  uint32_t reserved;
};

struct cuOccupancyMaxActiveClusters {
  KernelId kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3];
  uint32_t dynamic_shared_bytes;
  uint32_t reserved;
};
struct cuOccupancyMaxActiveClusters_Reply {
  int32_t clusters;
  uint32_t reserved;
};

}  // namespace detshare::wire
