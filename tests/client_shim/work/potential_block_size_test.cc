#include "client_shim/work/potential_block_size.h"

#include <catch2/catch.hpp>
#include <vector>

namespace detshare::shim {
namespace {

BlockSizeSearch LikeH200(int limit) {
  BlockSizeSearch search;
  search.multiprocessors = 132;
  search.threads_per_multiprocessor = 2048;
  search.limit = limit;
  return search;
}

// At most 32 blocks and 64 warps on a multiprocessor.
CUresult PlainKernel(int block_size, int* blocks) {
  *blocks = std::min(32, 64 / ((block_size + 31) / 32));
  return CUDA_SUCCESS;
}

// The results of driver 580 on an H200 for a kernel with few registers.
TEST_CASE("The potential block size is the driver's") {
  struct {
    int limit, grid, block;
  } const expected[] = {{1024, 264, 1024}, {1, 4224, 1},     {33, 4224, 33},
                        {100, 4224, 64},   {256, 1056, 256}, {128, 2112, 128}};
  for (const auto& e : expected) {
    int grid = -1, block = -1;
    REQUIRE(FindBlockSize(LikeH200(e.limit), PlainKernel, &grid, &block) == CUDA_SUCCESS);
    CHECK(block == e.block);
    CHECK(grid == e.grid);
  }
}

TEST_CASE("Candidates are tried from the largest down, until one fills the multiprocessor") {
  std::vector<int> tried;
  int grid, block;
  const auto blocks_for = [&](int block_size, int* blocks) {
    tried.push_back(block_size);
    *blocks = block_size <= 256 ? 2048 / block_size : 1;
    return CUDA_SUCCESS;
  };
  REQUIRE(FindBlockSize(LikeH200(1024), blocks_for, &grid, &block) == CUDA_SUCCESS);
  CHECK(block == 256);
  REQUIRE(tried.size() == 25);
  CHECK(tried.front() == 1024);
  CHECK(tried[1] == 992);
  CHECK(tried.back() == 256);
}

TEST_CASE("If no block fits, the block size and the grid are 0") {
  int grid = -1, block = -1;
  const auto nothing = [](int, int* blocks) {
    *blocks = 0;
    return CUDA_SUCCESS;
  };
  REQUIRE(FindBlockSize(LikeH200(1024), nothing, &grid, &block) == CUDA_SUCCESS);
  CHECK(grid == 0);
  CHECK(block == 0);
}

TEST_CASE("An error ends the search and leaves the results unchanged") {
  int grid = -1, block = -1;
  const auto fails = [](int, int*) { return CUDA_ERROR_ILLEGAL_ADDRESS; };
  CHECK(FindBlockSize(LikeH200(1024), fails, &grid, &block) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(grid == -1);
  CHECK(block == -1);
}

}  // namespace
}  // namespace detshare::shim
