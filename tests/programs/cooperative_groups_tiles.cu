// Cooperative groups inside a block: thread_block, tiles of several sizes with shuffles, votes,
// reductions and scans, and coalesced groups.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int kThreads = 128;
constexpr int kBlocks = 5;
constexpr int kCount = kBlocks * kThreads;

template <int kTile>
__global__ void Tiles(const int* in, int* out) {
  __shared__ int staged[kThreads];
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<kTile> tile = cg::tiled_partition<kTile>(block);
  int i = blockIdx.x * blockDim.x + block.thread_rank();
  staged[block.thread_rank()] = in[i];
  block.sync();
  int value = staged[block.size() - 1 - block.thread_rank()];

  int n = 0;
  auto put = [&](int result) { out[n++ * kCount + i] = result; };
  put(tile.thread_rank() + 100 * tile.size() + 10000 * tile.meta_group_rank());
  put(tile.shfl(value, 1));
  put(tile.shfl_xor(value, kTile / 2));
  put(tile.shfl_down(value, 1));
  put(static_cast<int>(tile.ballot(value & 1)));
  put(tile.any(value % 11 == 0) * 2 + tile.all(value % 5 != 0));
  put(cg::reduce(tile, value, cg::plus<int>()));
  put(cg::reduce(tile, value, cg::greater<int>()));
  put(cg::inclusive_scan(tile, value));
  tile.sync();
  int sum = value;
  for (int delta = kTile / 2; delta > 0; delta /= 2) sum += tile.shfl_down(sum, delta);
  put(tile.thread_rank() == 0 ? sum : 0);
}

template <int kTile>
std::vector<int> ExpectedTiles(const std::vector<int>& in) {
  std::vector<int> out(10 * kCount);
  for (int i = 0; i < kCount; ++i) {
    int block = i / kThreads, thread = i % kThreads, first = thread / kTile * kTile,
        rank = thread % kTile;
    auto value = [&](int k) { return in[block * kThreads + kThreads - 1 - (first + k)]; };
    int n = 0;
    auto put = [&](int result) { out[n++ * kCount + i] = result; };
    put(rank + 100 * kTile + 10000 * (thread / kTile));
    put(value(1));
    put(value(rank ^ (kTile / 2)));
    put(rank + 1 < kTile ? value(rank + 1) : value(rank));
    unsigned ballot = 0;
    int any = 0, all = 1, sum = 0, largest = value(0), below = 0;
    for (int k = 0; k < kTile; ++k) {
      ballot |= static_cast<unsigned>(value(k) & 1) << k;
      any |= value(k) % 11 == 0;
      all &= value(k) % 5 != 0;
      sum += value(k);
      largest = value(k) > largest ? value(k) : largest;
      if (k <= rank) below += value(k);
    }
    put(static_cast<int>(ballot));
    put(any * 2 + all);
    put(sum);
    put(largest);
    put(below);
    put(rank == 0 ? sum : 0);
  }
  return out;
}

// One atomic for each coalesced group. The machine chooses the threads of a group, but the total is
// always the same.
__global__ void Count(const int* in, int* total, int* slots) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (in[i] % 3 == 0) {
    cg::coalesced_group active = cg::coalesced_threads();
    int base = 0;
    if (active.thread_rank() == 0) base = atomicAdd(total, static_cast<int>(active.size()));
    base = active.shfl(base, 0);
    atomicAdd(&slots[base + active.thread_rank()], 1);
  }
}

template <int kTile>
void Test(const char* what, const std::vector<int>& in, const int* device_in) {
  std::vector<int> want = ExpectedTiles<kTile>(in);
  int* out = check::Zeroed<int>(want.size());
  Tiles<kTile><<<kBlocks, kThreads>>>(device_in, out);
  CHECK(cudaGetLastError());
  check::Compare(what, check::Download(out, want.size()), want);
  CHECK(cudaFree(out));
}

int main() {
  check::Random random(8);
  std::vector<int> in(kCount);
  for (int& value : in) value = static_cast<int>(random.Next32() % 100000);
  int* device_in = check::Upload(in);
  Test<32>("tiles of 32", in, device_in);
  Test<16>("tiles of 16", in, device_in);
  Test<8>("tiles of 8", in, device_in);
  Test<4>("tiles of 4", in, device_in);

  int expected = 0;
  for (int value : in) expected += value % 3 == 0;
  int* slots = check::Zeroed<int>(kCount + 1);
  Count<<<kBlocks, kThreads>>>(device_in, slots + kCount, slots);
  CHECK(cudaGetLastError());
  std::vector<int> want(kCount, 0);
  for (int i = 0; i < expected; ++i) want[i] = 1;
  want.push_back(expected);
  check::Compare("coalesced", check::Download(slots, kCount + 1), want);
  CHECK(cudaFree(device_in));
  CHECK(cudaFree(slots));
  return check::Ok();
}
