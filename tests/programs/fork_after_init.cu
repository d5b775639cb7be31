// fork after the parent has used CUDA. The runtime and the driver refuse the child, and the
// parent's work goes on.
#include <sys/wait.h>
#include <unistd.h>

#include "check_driver.h"

__global__ void Step(unsigned* x, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = x[i] * 69069u + 5;
}

struct Results {
  cudaError_t allocate, synchronize, copy;
  CUresult driver_allocate, driver_synchronize;
};

int main() {
  constexpr int kCount = 4096;
  std::vector<unsigned> x(kCount);
  for (int i = 0; i < kCount; ++i) x[i] = i;
  unsigned* device = check::Upload(x);
  Step<<<kCount / 128, 128>>>(device, kCount);
  CHECK(cudaDeviceSynchronize());

  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::fflush(stdout);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Results results;
    void* memory = nullptr;
    unsigned value = 0;
    CUdeviceptr pointer = 0;
    results.allocate = cudaMalloc(&memory, 256);
    results.synchronize = cudaDeviceSynchronize();
    results.copy = cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost);
    results.driver_allocate = cuMemAlloc(&pointer, 256);
    results.driver_synchronize = cuCtxSynchronize();
    bool written = write(ends[1], &results, sizeof results) == static_cast<ssize_t>(sizeof results);
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  // The parent works while the child tries.
  Step<<<kCount / 128, 128>>>(device, kCount);
  CHECK(cudaGetLastError());
  Results results;
  REQUIRE(read(ends[0], &results, sizeof results) == static_cast<ssize_t>(sizeof results));
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::printf("child: cudaMalloc: %s\n", cudaGetErrorName(results.allocate));
  std::printf("child: cudaDeviceSynchronize: %s\n", cudaGetErrorName(results.synchronize));
  std::printf("child: cudaMemcpy: %s\n", cudaGetErrorName(results.copy));
  std::printf("child: cuMemAlloc: %s\n", check::Name(results.driver_allocate));
  std::printf("child: cuCtxSynchronize: %s\n", check::Name(results.driver_synchronize));
  REQUIRE(results.allocate == cudaErrorInitializationError);
  REQUIRE(results.driver_allocate == CUDA_ERROR_NOT_INITIALIZED);

  // The parent still has its memory, its code and its stream.
  Step<<<kCount / 128, 128>>>(device, kCount);
  CHECK(cudaDeviceSynchronize());
  for (unsigned& value : x) {
    for (int step = 0; step < 3; ++step) value = value * 69069u + 5;
  }
  check::Compare("parent", check::Download(device, kCount), x);
  CHECK(cudaFree(device));
  return check::Ok();
}
