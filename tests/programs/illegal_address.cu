// A kernel writes to an address without memory. The next synchronisation returns the error, and so
// does every later call. The program succeeds if exactly that happens.
#include "check.h"

__global__ void WriteTo(int* where) { *where = 1; }

__global__ void Nothing() {}

int main() {
  int* good = check::Zeroed<int>(1);
  WriteTo<<<1, 1>>>(good);
  CHECK(cudaDeviceSynchronize());
  REQUIRE(check::Download(good, 1)[0] == 1);

  WriteTo<<<1, 1>>>(reinterpret_cast<int*>(0x10));
  cudaError_t error = cudaDeviceSynchronize();
  std::printf("synchronisation: %s\n", cudaGetErrorName(error));
  REQUIRE(error == cudaErrorIllegalAddress);
  std::printf("last error: %s\n", cudaGetErrorName(cudaGetLastError()));
  // Getting the error does not clear it.
  void* memory = nullptr;
  int value = 0;
  Nothing<<<1, 1>>>();
  const cudaError_t later[] = {cudaGetLastError(), cudaMalloc(&memory, 16),
                               cudaMemcpy(&value, good, sizeof value, cudaMemcpyDeviceToHost),
                               cudaDeviceSynchronize(), cudaFree(good)};
  const char* names[] = {"launch", "cudaMalloc", "cudaMemcpy", "cudaDeviceSynchronize", "cudaFree"};
  for (int i = 0; i < 5; ++i) {
    std::printf("%s: %s\n", names[i], cudaGetErrorName(later[i]));
    REQUIRE(later[i] == cudaErrorIllegalAddress);
  }
  return check::Ok();
}
