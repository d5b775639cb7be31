// Managed memory: one pointer for CPU and GPU, copies of it, advice and queries.
#include <cstring>

#include "check.h"

__global__ void Scale(int* values, int count, int factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = values[i] * factor + i;
}

int Attribute(const int* memory, std::size_t bytes, cudaMemRangeAttribute which) {
  int value = -99;
  CHECK(cudaMemRangeGetAttribute(&value, sizeof value, which, memory, bytes));
  return value;
}

int main() {
  int managed = 0, concurrent = 0;
  CHECK(cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, 0));
  CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
  std::printf("managed %d, concurrent %d\n", managed, concurrent);

  constexpr int kCount = 1 << 18;
  constexpr std::size_t kBytes = kCount * sizeof(int);
  int* values = nullptr;
  CHECK(cudaMallocManaged(&values, kBytes));
  for (int i = 0; i < kCount; ++i) values[i] = i;
  Scale<<<kCount / 256, 256>>>(values, kCount, 3);
  CHECK(cudaDeviceSynchronize());
  std::vector<int> want(kCount);
  for (int i = 0; i < kCount; ++i) want[i] = 4 * i;
  check::Compare("kernel after host", values, want.data(), kCount);
  for (int i = 0; i < kCount; i += 2) values[i] = want[i] = -i;
  Scale<<<kCount / 256, 256>>>(values, kCount, 2);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) want[i] = want[i] * 2 + i;
  check::Compare("kernel after host again", values, want.data(), kCount);

  // The pointer's attributes.
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, values + 5));
  std::printf("type %s, device %d, same pointers %d\n",
              attributes.type == cudaMemoryTypeManaged ? "managed" : "other", attributes.device,
              attributes.devicePointer == values + 5 && attributes.hostPointer == values + 5);

  // Copies and memsets.
  int* device = check::Zeroed<int>(kCount);
  CHECK(cudaMemcpy(device, values, kBytes, cudaMemcpyDefault));
  CHECK(cudaMemset(values, 0xff, kBytes / 2));
  CHECK(cudaMemcpy(values + kCount / 2, device, kBytes / 2, cudaMemcpyDeviceToDevice));
  CHECK(cudaDeviceSynchronize());
  std::vector<int> copied(kCount, -1);
  std::memcpy(copied.data() + kCount / 2, want.data(), kBytes / 2);
  check::Compare("copies", values, copied.data(), kCount);

  // Advice and prefetching are hints. The latest value of each is remembered.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaMemLocation gpu{}, host{};
  gpu.type = cudaMemLocationTypeDevice;
  host.type = cudaMemLocationTypeHost;
  std::printf("before: %d %d\n", Attribute(values, kBytes, cudaMemRangeAttributeReadMostly),
              Attribute(values, kBytes, cudaMemRangeAttributePreferredLocation));
  CHECK(cudaMemAdvise(values, kBytes, cudaMemAdviseSetReadMostly, gpu));
  CHECK(cudaMemAdvise(values, kBytes, cudaMemAdviseSetPreferredLocation, gpu));
  CHECK(cudaMemAdvise(values, kBytes, cudaMemAdviseSetAccessedBy, gpu));
  CHECK(cudaMemPrefetchAsync(values, kBytes, gpu, 0, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::printf("advised: %d %d %d %d\n", Attribute(values, kBytes, cudaMemRangeAttributeReadMostly),
              Attribute(values, kBytes, cudaMemRangeAttributePreferredLocation),
              Attribute(values, kBytes, cudaMemRangeAttributeAccessedBy),
              Attribute(values, kBytes, cudaMemRangeAttributeLastPrefetchLocation));
  CHECK(cudaMemAdvise(values, kBytes / 2, cudaMemAdviseUnsetReadMostly, gpu));
  CHECK(cudaMemAdvise(values, kBytes, cudaMemAdviseSetPreferredLocation, host));
  CHECK(cudaMemPrefetchAsync(values, kBytes / 2, host, 0, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::printf(
      "halves: %d %d, %d, %d %d\n", Attribute(values, kBytes, cudaMemRangeAttributeReadMostly),
      Attribute(values + kCount / 2, kBytes / 2, cudaMemRangeAttributeReadMostly),
      Attribute(values, kBytes, cudaMemRangeAttributePreferredLocation),
      Attribute(values, kBytes / 2, cudaMemRangeAttributeLastPrefetchLocation),
      Attribute(values + kCount / 2, kBytes / 2, cudaMemRangeAttributeLastPrefetchLocation));
  EXPECT_ERROR(cudaMemPrefetchAsync(device, kBytes, gpu, 0, stream));
  EXPECT_ERROR(cudaMallocManaged(&device, kBytes, 8));

  // The contents have not changed.
  check::Compare("after the hints", values, copied.data(), kCount);
  CHECK(cudaStreamAttachMemAsync(stream, values, 0, cudaMemAttachSingle));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(values));
  EXPECT(cudaFree(values), cudaErrorInvalidValue);
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
