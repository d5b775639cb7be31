// A cooperative launch whose blocks exchange data across grid-wide barriers.
#include <cooperative_groups.h>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int kBlocks = 12;
constexpr int kThreads = 64;
constexpr int kCount = kBlocks * kThreads;
constexpr int kSteps = 9;

// Each step reads what other blocks wrote in the step before.
__global__ void Mix(unsigned* a, unsigned* b, unsigned* sums) {
  cg::grid_group grid = cg::this_grid();
  int i = static_cast<int>(grid.thread_rank());
  for (int step = 0; step < kSteps; ++step) {
    unsigned other = a[(i + 1 + 64 * step) % kCount];
    b[i] = a[i] * 3u + other;
    atomicAdd(&sums[step], b[i]);
    grid.sync();
    // All additions of this step are visible to all blocks here.
    b[i] += sums[step] & 0xffu;
    grid.sync();
    unsigned* swap = a;
    a = b;
    b = swap;
  }
}

__global__ void TooMany() { cg::this_grid().sync(); }

int main() {
  int supported = 0;
  CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0));
  REQUIRE(supported == 1);

  check::Random random(6);
  std::vector<unsigned> a(kCount), b(kCount, 0u), sums(kSteps, 0u);
  for (unsigned& value : a) value = random.Next32();
  unsigned* device_a = check::Upload(a);
  unsigned* device_b = check::Upload(b);
  unsigned* device_sums = check::Upload(sums);
  void* arguments[] = {&device_a, &device_b, &device_sums};
  CHECK(cudaLaunchCooperativeKernel(Mix, dim3(kBlocks), dim3(kThreads), arguments, 0, nullptr));
  CHECK(cudaDeviceSynchronize());

  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kCount; ++i) {
      b[i] = a[i] * 3u + a[(i + 1 + 64 * step) % kCount];
      sums[step] += b[i];
    }
    for (unsigned& value : b) value += sums[step] & 0xffu;
    a.swap(b);
  }
  // After an odd number of steps the results are in the second array.
  check::Compare("mixed", check::Download(kSteps % 2 == 1 ? device_b : device_a, kCount), a);
  check::Compare("sums", check::Download(device_sums, kSteps), sums);

  // Blocks cannot wait for each other if they do not all fit at once.
  EXPECT(cudaLaunchCooperativeKernel(TooMany, dim3(1000000), dim3(1024), nullptr, 0, nullptr),
         cudaErrorCooperativeLaunchTooLarge);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_sums));
  return check::Ok();
}
