// Registered host memory: ranges of malloc'ed memory that begin and end inside pages. Copies and
// kernels use them in place. Other data on the same pages must survive. Variables on the stack share
// pages with the frames of the call that registers them.
#include <thread>

#include "check.h"

constexpr int kCount = 12345;

__global__ void Transform(const int* in, int* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = 5 * in[i] + i;
}

__global__ void Set(int* to, int value) { *to = value; }

__attribute__((noinline)) void OneOnStack(int value) {
  int variable = 7, *device = nullptr;
  CHECK(cudaHostRegister(&variable, sizeof(variable), cudaHostRegisterMapped));
  REQUIRE(variable == 7);
  CHECK(cudaHostGetDevicePointer(&device, &variable, 0));
  Set<<<1, 1>>>(device, value);
  CHECK(cudaDeviceSynchronize());
  REQUIRE(variable == value);
  CHECK(cudaHostUnregister(&variable));
  REQUIRE(variable == value);
}

// At all distances from the border of a page.
__attribute__((noinline)) void OnStack() {
  for (int i = 0; i < 64; ++i) {
    auto* const deeper = static_cast<volatile char*>(__builtin_alloca(64));
    deeper[0] = 1;
    OneOnStack(100 + i);
  }
}

int main() {
  // The guards share pages with the registered range. The offset keeps only the alignment of int.
  constexpr int kGuard = 333;
  const std::size_t bytes = kCount * sizeof(int);
  std::vector<int> memory(kGuard + kCount + kGuard);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<int>(i * 2654435761u);
  std::vector<int> before = memory;
  int* range = memory.data() + kGuard;

  CHECK(cudaHostRegister(range, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
  EXPECT(cudaHostRegister(range, bytes, cudaHostRegisterDefault),
         cudaErrorHostMemoryAlreadyRegistered);
  REQUIRE(memory == before);

  // Checks the contents from before the registration, then contents written after it.
  int* device_range = nullptr;
  CHECK(cudaHostGetDevicePointer(&device_range, range, 0));
  int* result = check::Zeroed<int>(kCount);
  std::vector<int> want(kCount);
  for (int round = 0; round < 2; ++round) {
    if (round == 1) {
      for (int i = 0; i < kCount; ++i) range[i] = i * i;
    }
    for (int i = 0; i < kCount; ++i) want[i] = 5 * range[i] + i;
    Transform<<<(kCount + 127) / 128, 128>>>(device_range, result, kCount);
    CHECK(cudaGetLastError());
    check::Compare(round == 0 ? "read, written before" : "read, written after",
                   check::Download(result, kCount), want);
  }

  // The kernel writes into the range. The guards must not change.
  Transform<<<(kCount + 127) / 128, 128>>>(result, device_range, kCount);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) before[kGuard + i] = 5 * want[i] + i;
  check::Compare("written in place", memory, before);

  // Asynchronous copies both ways.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int i = 0; i < kCount; ++i) range[i] = ~i;
  CHECK(cudaMemcpyAsync(result, range, bytes, cudaMemcpyHostToDevice, stream));
  Transform<<<(kCount + 127) / 128, 128, 0, stream>>>(result, result, kCount);
  CHECK(cudaMemcpyAsync(range, result, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) before[kGuard + i] = 5 * ~i + i;
  check::Compare("copied", memory, before);

  // After the registration has ended, the memory is ordinary memory with the same contents.
  CHECK(cudaHostUnregister(range));
  check::Compare("unregistered", memory, before);
  EXPECT(cudaHostUnregister(range), cudaErrorHostMemoryNotRegistered);
  for (int i = 0; i < kCount; ++i) range[i] = i;
  CHECK(cudaMemcpy(result, range, bytes, cudaMemcpyHostToDevice));
  for (int i = 0; i < kCount; ++i) want[i] = i;
  check::Compare("pageable again", check::Download(result, kCount), want);

  // The memory can be registered again.
  CHECK(cudaHostRegister(range, bytes, cudaHostRegisterDefault));
  CHECK(cudaMemcpyAsync(range, result, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  check::Compare("registered again", range, want.data(), kCount);
  CHECK(cudaHostUnregister(range));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(result));
  OnStack();
  std::thread(OnStack).join();
  return check::Ok();
}
