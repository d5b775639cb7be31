// The search behind cuOccupancyMaxPotentialBlockSize.
#pragma once

#include <algorithm>

#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

struct BlockSizeSearch {
  int warp_size = 32;
  int multiprocessors = 0;
  int threads_per_multiprocessor = 0;
  int limit = 0;  // the largest block size
};

// Finds the block size with the most resident threads on a multiprocessor, and the grid that fills
// the device with such blocks. If several sizes are equal, the largest wins. Candidates are the
// limit and the whole warps below it, from the largest down, until one fills the multiprocessor.
// `blocks_for(block_size, &blocks)` says how many blocks of a size fit a multiprocessor; its error
// ends the search. Both results are 0 if no block fits.
template <typename BlocksFor>
CUresult FindBlockSize(const BlockSizeSearch& search, BlocksFor blocks_for, int* min_grid_size,
                       int* block_size) {
  int best_threads = 0, best_size = 0, best_blocks = 0;
  const int warps = (search.limit + search.warp_size - 1) / search.warp_size;
  for (int warp = warps; warp > 0 && best_threads < search.threads_per_multiprocessor; --warp) {
    const int size = std::min(warp * search.warp_size, search.limit);
    int blocks = 0;
    if (const CUresult result = blocks_for(size, &blocks); result != CUDA_SUCCESS) return result;
    if (size * blocks > best_threads) {
      best_threads = size * blocks;
      best_size = size;
      best_blocks = blocks;
    }
  }
  *block_size = best_size;
  *min_grid_size = best_blocks * search.multiprocessors;
  return CUDA_SUCCESS;
}

}  // namespace detshare::shim
