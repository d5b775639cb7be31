// Kernels that launch kernels: a tree of kernels that sorts, one launch by each thread, the streams
// for fire-and-forget and tail launches, and copies and fills.
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

constexpr int kBytes = 1 << 16, kPitch = 100, kRows = 8, kSlices = 3;
constexpr char kBefore = 5;

// Each operation overwrites a part of what was there. All fills are with 0, because the device runtime
// of CUDA 13.0 fills with 0 whatever the value is.
__global__ void MoveMemory(char* to, const char* from, cudaError_t* errors) {
  errors[0] = cudaMemsetAsync(to, 0, 10'000, 0);
  errors[1] = cudaMemcpyAsync(to + 33, from, 9'000, cudaMemcpyDeviceToDevice, 0);
  errors[2] = cudaMemset2DAsync(to + 20'000, kPitch, 0, 17, kRows, 0);
  errors[3] = cudaMemcpy2DAsync(to + 20'010, kPitch, from, 60, 50, kRows, cudaMemcpyDefault, 0);
  const cudaExtent extent = {40, kRows - 1, kSlices - 1};
  errors[4] = cudaMemset3DAsync({to + 30'000, kPitch, 60, kRows}, 0, extent, 0);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = {const_cast<char*>(from), 80, 80, 10};
  copy.srcPos = {3, 2, 1};
  copy.dstPtr = {to + 30'000, kPitch, 60, kRows};
  copy.dstPos = {10, 1, 1};
  copy.extent = extent;
  copy.kind = cudaMemcpyDeviceToDevice;
  errors[5] = cudaMemcpy3DAsync(&copy, 0);
  errors[6] = cudaMemsetAsync(to + 50'000, 0, 0, 0);
  Add<<<1, 1>>>(reinterpret_cast<unsigned long long*>(to + 40'000), 3, 1);  // adds 9
}

std::vector<char> MovedMemory(const std::vector<char>& from) {
  std::vector<char> to(kBytes, kBefore);
  std::fill_n(to.begin(), 10'000, 0);
  std::copy_n(from.begin(), 9'000, to.begin() + 33);
  for (int y = 0; y < kRows; ++y) std::fill_n(to.begin() + 20'000 + y * kPitch, 17, 0);
  for (int y = 0; y < kRows; ++y)
    std::copy_n(from.begin() + y * 60, 50, to.begin() + 20'010 + y * kPitch);
  for (int z = 0; z < kSlices - 1; ++z) {
    for (int y = 0; y < kRows - 1; ++y)
      std::fill_n(to.begin() + 30'000 + (z * kRows + y) * kPitch, 40, 0);
  }
  for (int z = 0; z < kSlices - 1; ++z) {
    for (int y = 0; y < kRows - 1; ++y) {
      std::copy_n(from.begin() + 3 + (y + 2) * 80 + (z + 1) * 800, 40,
                  to.begin() + 30'010 + (y + 1) * kPitch + (z + 1) * kRows * kPitch);
    }
  }
  to[40'000] += 9;
  return to;
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

  std::vector<char> source(kBytes);
  for (char& byte : source)
    byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  char* memory;
  CHECK(cudaMalloc(&memory, 2 * kBytes));
  CHECK(cudaMemset(memory, kBefore, kBytes));
  CHECK(cudaMemcpy(memory + kBytes, source.data(), kBytes, cudaMemcpyDefault));
  cudaError_t* errors;
  CHECK(cudaMallocManaged(&errors, 7 * sizeof(*errors)));
  MoveMemory<<<1, 1>>>(memory, memory + kBytes, errors);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 7; ++i) REQUIRE(errors[i] == cudaSuccess);
  std::vector<char> moved(kBytes);
  CHECK(cudaMemcpy(moved.data(), memory, kBytes, cudaMemcpyDefault));
  REQUIRE(moved == MovedMemory(source));
  std::printf("a kernel copied and filled\n");
  CHECK(cudaFree(memory));
  CHECK(cudaFree(errors));

  size_t pending;
  CHECK(cudaDeviceGetLimit(&pending, cudaLimitDevRuntimePendingLaunchCount));
  std::printf("room for %zu pending launches\n", pending);
  CHECK(cudaFree(sorted));
  CHECK(cudaFree(sum));
  CHECK(cudaFree(error));
  CHECK(cudaFree(results));
  std::printf("ok\n");
}
