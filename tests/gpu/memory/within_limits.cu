// Shows a program's view of its tenant's limits. The limit of device memory is a multiple of 16 MiB
// here, that of pinned memory is 16 MiB.
//
// Prints the memory that the program sees and gets, in MiB. Does so again after each line on its
// standard input.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>

namespace {

constexpr size_t kMiB = 1 << 20;

void Say(const char* what, cudaError_t result) {
  std::printf("%s: %s\n", what, result == cudaSuccess ? "yes" : cudaGetErrorName(result));
  (void)cudaGetLastError();
}

size_t SayMemory() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  std::printf("free %zu of %zu\n", free / kMiB, total / kMiB);
  return total;
}

void TryAllocate(size_t bytes) {
  char text[64];
  std::snprintf(text, sizeof(text), "%zu more", bytes / kMiB);
  void* memory = nullptr;
  Say(text, cudaMalloc(&memory, bytes));
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const size_t total = SayMemory();
  cudaDeviceProp properties{};
  if (total == 0 || cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return 1;
  std::printf("the device has %zu\n", properties.totalGlobalMem / kMiB);
  TryAllocate(total + 2 * kMiB);
  TryAllocate(total / 2);
  SayMemory();
  const size_t too_much = total / 2 + 2 * kMiB;
  void* memory = nullptr;
  Say("too much of a pool", cudaMallocAsync(&memory, too_much, nullptr));
  CUmemAllocationProp physical{};
  physical.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle;
  const bool refused = cuMemCreate(&handle, too_much, &physical, 0) == CUDA_ERROR_OUT_OF_MEMORY;
  std::printf("too much physical memory: %s\n",
              refused ? "CUDA_ERROR_OUT_OF_MEMORY" : "not refused");
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  Say("too large an array", cudaMallocArray(&array, &format, 4096, too_much / 4096 / 4 + 1));
  void* pinned = nullptr;
  Say("12 pinned", cudaMallocHost(&pinned, 12 * kMiB));
  void* more = nullptr;
  Say("8 more pinned", cudaMallocHost(&more, 8 * kMiB));
  Say("8 managed", cudaMallocManaged(&more, 8 * kMiB));
  Say("freed", cudaFreeHost(pinned));
  Say("16 pinned", cudaMallocHost(&pinned, 16 * kMiB));
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    if (c != '\n') continue;
    SayMemory();
    TryAllocate(16 * kMiB);
  }
  std::printf("ok\n");
}
