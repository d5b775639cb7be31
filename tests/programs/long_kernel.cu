// A kernel that runs for a long time, work that is queued behind it, and the host's queries
// meanwhile.
#include "check.h"

constexpr int kThreads = 64;
constexpr unsigned kSteps = 60000;

__global__ void Long(unsigned* x, unsigned steps) {
  unsigned value = x[threadIdx.x];
  for (unsigned step = 0; step < steps; ++step) value = value * 1664525u + 1013904223u;
  x[threadIdx.x] = value;
}

__global__ void After(unsigned* x) { x[threadIdx.x] ^= 0x55555555u; }

int main() {
  std::vector<unsigned> x(kThreads);
  for (int i = 0; i < kThreads; ++i) x[i] = i;
  unsigned* device = check::Upload(x);
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (int round = 0; round < 3; ++round) {
    CHECK(cudaEventRecord(begin, stream));
    Long<<<1, kThreads, 0, stream>>>(device, kSteps);
    CHECK(cudaEventRecord(end, stream));
    After<<<1, kThreads, 0, stream>>>(device);
  }
  CHECK(cudaGetLastError());
  // The kernels may or may not have ended. No other result is right.
  cudaError_t running = cudaStreamQuery(stream);
  REQUIRE(running == cudaSuccess || running == cudaErrorNotReady);
  cudaGetLastError();
  CHECK(cudaStreamSynchronize(stream));
  float milliseconds = -1.0f;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  REQUIRE(milliseconds > 0.0f);
  for (unsigned& value : x) {
    for (int round = 0; round < 3; ++round) {
      for (unsigned step = 0; step < kSteps; ++step) value = value * 1664525u + 1013904223u;
      value ^= 0x55555555u;
    }
  }
  check::Compare("values", check::Download(device, kThreads), x);
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  return check::Ok();
}
