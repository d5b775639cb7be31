// Dynamic shared memory: sizes that the launch gives, several arrays in one piece, use beside
// static shared memory, and more than 48 KiB after opting in.
#include <string>

#include "check.h"

extern __shared__ unsigned char dynamic_memory[];

// Reverses the block's part of the input through shared memory: `per_thread` values for each
// thread.
__global__ void Reverse(const int* in, int* out, int per_thread) {
  int* staged = reinterpret_cast<int*>(dynamic_memory);
  int size = blockDim.x * per_thread, base = blockIdx.x * size;
  for (int i = threadIdx.x; i < size; i += blockDim.x) staged[i] = in[base + i];
  __syncthreads();
  for (int i = threadIdx.x; i < size; i += blockDim.x) out[base + i] = staged[size - 1 - i];
}

// Three arrays of different types one after the other, and a static one.
__global__ void Mixed(double* out) {
  __shared__ int fixed[32];
  double* doubles = reinterpret_cast<double*>(dynamic_memory);
  int* ints = reinterpret_cast<int*>(doubles + blockDim.x);
  short* shorts = reinterpret_cast<short*>(ints + blockDim.x);
  int i = threadIdx.x;
  doubles[i] = i * 0.5;
  ints[i] = i * 1000;
  shorts[i] = static_cast<short>(-i);
  fixed[i % 32] = 7;
  __syncthreads();
  int other = blockDim.x - 1 - i;
  out[i] = doubles[other] + ints[other] + shorts[other] + fixed[(i + 1) % 32];
}

__global__ void SizeOfShared(unsigned* out) {
  unsigned size;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
  *out = size;
}

void TestReverse(int blocks, int threads, int per_thread) {
  int size = threads * per_thread;
  std::vector<int> in(blocks * size), want(blocks * size);
  for (int i = 0; i < blocks * size; ++i) in[i] = i * 3 + 1;
  for (int i = 0; i < blocks * size; ++i) want[i] = in[i / size * size + size - 1 - i % size];
  int* device_in = check::Upload(in);
  int* device_out = check::Zeroed<int>(in.size());
  Reverse<<<blocks, threads, size * sizeof(int)>>>(device_in, device_out, per_thread);
  CHECK(cudaGetLastError());
  std::string what = "reverse, " + std::to_string(size * sizeof(int)) + " bytes";
  check::Compare(what.c_str(), check::Download(device_out, in.size()), want);
  CHECK(cudaFree(device_in));
  CHECK(cudaFree(device_out));
}

int main() {
  TestReverse(5, 64, 1);
  TestReverse(3, 96, 7);
  TestReverse(2, 256, 48);  // exactly 48 KiB

  // One value more needs the attribute. Without it the launch fails, and the next launch works.
  int* device = check::Zeroed<int>(30000);
  Reverse<<<1, 128, 48 * 1024 + 4>>>(device, device, 1);
  EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
  TestReverse(1, 32, 2);

  CHECK(cudaFuncSetAttribute(Reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024));
  TestReverse(2, 256, 64);
  TestReverse(1, 1000, 16);
  int max = 0;
  CHECK(cudaDeviceGetAttribute(&max, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  REQUIRE(max >= 64 * 1024);
  EXPECT_ERROR(cudaFuncSetAttribute(Reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, max + 1));

  constexpr int kThreads = 200;
  double* out = check::Zeroed<double>(kThreads);
  Mixed<<<1, kThreads, kThreads*(sizeof(double) + sizeof(int) + sizeof(short))>>>(out);
  CHECK(cudaGetLastError());
  std::vector<double> want(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    int other = kThreads - 1 - i;
    want[i] = other * 0.5 + other * 1000 - other + 7;
  }
  check::Compare("mixed", check::Download(out, kThreads), want);

  unsigned* size = check::Zeroed<unsigned>(1);
  SizeOfShared<<<1, 1, 12344>>>(size);
  CHECK(cudaGetLastError());
  // The hardware may round up.
  unsigned rounded = check::Download(size, 1)[0];
  REQUIRE(rounded >= 12344 && rounded < 12344 + 1024);
  CHECK(cudaFree(size));
  CHECK(cudaFree(out));
  CHECK(cudaFree(device));
  return check::Ok();
}
