// The result of this program depends on the order in which blocks run: it adds the blocks' numbers
// in the order of the SMs that ran them, and rounds after each SM. On the software GPU, the
// partition alone decides the SM of each block. So every run on the whole device has the same
// result, and a run on parts of it has another.
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                  \
  do {                                                               \
    const cudaError_t result = (call);                               \
    if (result != cudaSuccess) {                                     \
      std::printf("%d: %s\n", __LINE__, cudaGetErrorString(result)); \
      std::exit(1);                                                  \
    }                                                                \
  } while (false)

// Consecutive launches run on several partitions when each operation moves the stream.
constexpr int kLaunches = 4;

__global__ void FindSm(unsigned* sms) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  sms[blockIdx.x] = sm;
}
__global__ void AddInOrderOfSms(float* sum, const unsigned* sms, int blocks, unsigned sm_count) {
  float total = 0;
  for (unsigned sm = 0; sm < sm_count; ++sm) {
    for (int block = 0; block < blocks; ++block) {
      if (sms[block] == sm) total += block + 1;
    }
    total /= 3;
  }
  *sum = total;
}

int main() {
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  const int blocks = 2 * device.multiProcessorCount;
  unsigned* sms;
  float *sum, total[kLaunches];
  CHECK(cudaMalloc(&sms, kLaunches * blocks * sizeof(unsigned)));
  CHECK(cudaMalloc(&sum, sizeof(total)));
  for (int i = 0; i < kLaunches; ++i) FindSm<<<blocks, 1>>>(sms + i * blocks);
  for (int i = 0; i < kLaunches; ++i) {
    AddInOrderOfSms<<<1, 1>>>(sum + i, sms + i * blocks, blocks, device.multiProcessorCount);
  }
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(total, sum, sizeof(total), cudaMemcpyDeviceToHost));
  for (const float value : total) std::printf("%.9g\n", value);
  return 0;
}
