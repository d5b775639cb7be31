// Memory that another process opens and changes, and still has when its owner has ended.
#include <vector>

#include "check.h"
#include "child_process.h"

namespace {

constexpr int kCount = 1 << 20;
constexpr int kSmall = 100;

__global__ void Fill(int* values, int count, int factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = i * factor;
}

__global__ void Add(int* values, int count, int more) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += more;
}

int Blocks(int count) { return (count + 255) / 256; }

struct Handles {
  cudaIpcMemHandle_t large, small;
};

// Fills its memory, waits until the other process has changed it, checks it, and ends without
// freeing it.
int Producer(const Line& consumer) {
  int *large, *small;
  CHECK(cudaMalloc(&large, kCount * sizeof(int)));
  CHECK(cudaMalloc(&small, kSmall * sizeof(int)));
  Fill<<<Blocks(kCount), 256>>>(large, kCount, 3);
  Fill<<<Blocks(kSmall), 256>>>(small, kSmall, 5);
  CHECK(cudaDeviceSynchronize());
  Handles handles;
  CHECK(cudaIpcGetMemHandle(&handles.large, large));
  CHECK(cudaIpcGetMemHandle(&handles.small, small));
  consumer.Send(handles);
  consumer.Receive<char>();
  std::vector<int> want(kCount);
  for (int i = 0; i < kCount; ++i) want[i] = 3 * i + 7;
  const std::vector<int> got = check::Download(large, kCount);
  REQUIRE(got == want);
  // The other process still has the memory.
  Fill<<<Blocks(kCount), 256>>>(large, kCount, 11);
  CHECK(cudaDeviceSynchronize());
  return 0;
}

}  // namespace

int main() {
  const ChildProcess producer(Producer);
  const Handles handles = producer.line().Receive<Handles>();

  int *large, *again, *small;
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&large), handles.large,
                             cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&small), handles.small,
                             cudaIpcMemLazyEnablePeerAccess));
  std::vector<int> want(kSmall);
  for (int i = 0; i < kSmall; ++i) want[i] = 5 * i;
  check::Compare("small", check::Download(small, kSmall), want);
  // A second opening gives the same memory.
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), handles.large,
                             cudaIpcMemLazyEnablePeerAccess));
  REQUIRE(again == large);
  CHECK(cudaIpcCloseMemHandle(again));
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, large));
  REQUIRE(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);

  Add<<<Blocks(kCount), 256>>>(large, kCount, 7);
  CHECK(cudaDeviceSynchronize());
  producer.line().Send('c');
  producer.Await();

  want.resize(kCount);
  for (int i = 0; i < kCount; ++i) want[i] = 11 * i;
  check::Compare("large, when its owner is gone", check::Download(large, kCount), want);
  CHECK(cudaIpcCloseMemHandle(large));
  CHECK(cudaIpcCloseMemHandle(small));

  // The owner itself cannot open the memory.
  int* own;
  CHECK(cudaMalloc(&own, 4096));
  cudaIpcMemHandle_t handle;
  CHECK(cudaIpcGetMemHandle(&handle, own));
  EXPECT(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&large), handle,
                              cudaIpcMemLazyEnablePeerAccess),
         cudaErrorDeviceUninitialized);
  CHECK(cudaFree(own));
  return check::Ok();
}
