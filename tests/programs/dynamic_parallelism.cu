// Kernels that launch kernels: a tree of kernels that sorts, one launch by each thread, and the
// streams for fire-and-forget and tail launches.
#include <algorithm>

#include "check.h"

constexpr int kCount = 1 << 14;
constexpr int kSmallPart = 64;

__device__ void SortSmall(uint32_t* data, int count) {
  for (int i = 1; i < count; ++i) {
    const uint32_t value = data[i];
    int at = i;
    for (; at > 0 && data[at - 1] > value; --at) data[at] = data[at - 1];
    data[at] = value;
  }
}

// Quicksort. Separate kernels sort its parts.
__global__ void Sort(uint32_t* data, int count, int depth) {
  if (count <= kSmallPart || depth == 0) {
    SortSmall(data, count);
    return;
  }
  const uint32_t pivot = data[count / 2];
  int low = 0, high = count - 1;
  while (low <= high) {
    while (data[low] < pivot) ++low;
    while (data[high] > pivot) --high;
    if (low > high) break;
    const uint32_t taken = data[low];
    data[low++] = data[high];
    data[high--] = taken;
  }
  if (high > 0) Sort<<<1, 1, 0, cudaStreamFireAndForget>>>(data, high + 1, depth - 1);
  if (low < count - 1)
    Sort<<<1, 1, 0, cudaStreamFireAndForget>>>(data + low, count - low, depth - 1);
}

__global__ void Add(unsigned long long* sum, int from, int count) {
  const int i = from + threadIdx.x;
  if (threadIdx.x < count) atomicAdd(sum, static_cast<unsigned long long>(i) * i);
}

__global__ void LaunchFromEachThread(unsigned long long* sum) {
  Add<<<1, 32>>>(sum, (blockIdx.x * blockDim.x + threadIdx.x) * 32, 32);
}

__global__ void Double(unsigned long long* sum) { *sum *= 2; }

// The tail launch runs after the kernel and everything that it launched have ended.
__global__ void WithTail(unsigned long long* sum, cudaError_t* error) {
  Double<<<1, 1, 0, cudaStreamTailLaunch>>>(sum);
  Add<<<1, 32, 0, cudaStreamFireAndForget>>>(sum, 0, 32);
  cudaStream_t own;
  *error = cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
  for (int i = 1; i < 4; ++i) Add<<<1, 32, 0, own>>>(sum, 32 * i, 32);
  cudaStreamDestroy(own);
}

__global__ void AskDevice(int* results) {
  cudaGetDevice(&results[0]);
  cudaDeviceGetAttribute(&results[1], cudaDevAttrWarpSize, 0);
  Add<<<1, 2048>>>(nullptr, 0, 0);  // too many threads
  results[2] = cudaGetLastError();
}

int main() {
  std::vector<uint32_t> data(kCount);
  uint32_t state = 12345;
  for (uint32_t& value : data) value = (state = state * 1664525u + 1013904223u) >> 8;
  uint32_t* sorted;
  CHECK(cudaMalloc(&sorted, kCount * sizeof(uint32_t)));
  CHECK(cudaMemcpy(sorted, data.data(), kCount * sizeof(uint32_t), cudaMemcpyDefault));
  Sort<<<1, 1>>>(sorted, kCount, 20);
  CHECK(cudaGetLastError());
  std::vector<uint32_t> got(kCount);
  CHECK(cudaMemcpy(got.data(), sorted, kCount * sizeof(uint32_t), cudaMemcpyDefault));
  std::sort(data.begin(), data.end());
  REQUIRE(got == data);
  std::printf("sorted by a tree of kernels\n");

  unsigned long long* sum;
  CHECK(cudaMallocManaged(&sum, sizeof(*sum)));
  *sum = 0;
  LaunchFromEachThread<<<4, 64>>>(sum);
  CHECK(cudaDeviceSynchronize());
  const unsigned long long n = 4 * 64 * 32;
  REQUIRE(*sum == (n - 1) * n * (2 * n - 1) / 6);
  std::printf("256 threads launched a kernel each\n");

  *sum = 0;
  cudaError_t* error;
  CHECK(cudaMallocManaged(&error, sizeof(*error)));
  WithTail<<<1, 1>>>(sum, error);
  CHECK(cudaDeviceSynchronize());
  REQUIRE(*error == cudaSuccess);
  const unsigned long long m = 4 * 32;
  REQUIRE(*sum == 2 * ((m - 1) * m * (2 * m - 1) / 6));
  std::printf("the tail came last\n");

  int* results;
  CHECK(cudaMallocManaged(&results, 3 * sizeof(int)));
  AskDevice<<<1, 1>>>(results);
  CHECK(cudaDeviceSynchronize());
  std::printf("on the device: device %d, warps of %d, a bad launch is %s\n", results[0], results[1],
              cudaGetErrorName(static_cast<cudaError_t>(results[2])));
  size_t pending;
  CHECK(cudaDeviceGetLimit(&pending, cudaLimitDevRuntimePendingLaunchCount));
  std::printf("room for %zu pending launches\n", pending);
  CHECK(cudaFree(sorted));
  CHECK(cudaFree(sum));
  CHECK(cudaFree(error));
  CHECK(cudaFree(results));
  std::printf("ok\n");
}
