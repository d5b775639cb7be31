// The runtime's attributes of pointers to device, pinned, registered and ordinary memory, at its
// start and inside.
#include "check.h"

__device__ int global_array[100];

const char* Name(cudaMemoryType type) {
  switch (type) {
    case cudaMemoryTypeUnregistered:
      return "unregistered";
    case cudaMemoryTypeHost:
      return "host";
    case cudaMemoryTypeDevice:
      return "device";
    case cudaMemoryTypeManaged:
      return "managed";
  }
  return "unknown";
}

cudaPointerAttributes Ask(const char* what, const void* pointer) {
  cudaPointerAttributes attributes = {};
  CHECK(cudaPointerGetAttributes(&attributes, pointer));
  std::printf("%s: %s, device pointer %s, host pointer %s\n", what, Name(attributes.type),
              attributes.devicePointer != nullptr ? "yes" : "no",
              attributes.hostPointer != nullptr ? "yes" : "no");
  return attributes;
}

int main() {
  char* device = nullptr;
  CHECK(cudaMalloc(&device, 10000));
  for (std::size_t offset : {0u, 1u, 9999u}) {
    auto attributes = Ask("cudaMalloc", device + offset);
    REQUIRE(attributes.type == cudaMemoryTypeDevice);
    REQUIRE(attributes.device == 0);
    REQUIRE(attributes.devicePointer == device + offset);
    REQUIRE(attributes.hostPointer == nullptr);
  }
  char* pinned = nullptr;
  CHECK(cudaHostAlloc(&pinned, 10000, cudaHostAllocMapped));
  for (std::size_t offset : {0u, 777u}) {
    auto attributes = Ask("cudaHostAlloc", pinned + offset);
    REQUIRE(attributes.type == cudaMemoryTypeHost);
    REQUIRE(attributes.hostPointer == pinned + offset);
    void* mapped = nullptr;
    CHECK(cudaHostGetDevicePointer(&mapped, pinned + offset, 0));
    REQUIRE(attributes.devicePointer == mapped);
  }
  std::vector<char> ordinary(100000);
  auto before = Ask("malloc", ordinary.data());
  REQUIRE(before.type == cudaMemoryTypeUnregistered);
  CHECK(cudaHostRegister(ordinary.data(), ordinary.size(), cudaHostRegisterMapped));
  auto during = Ask("registered", ordinary.data() + 12345);
  REQUIRE(during.type == cudaMemoryTypeHost);
  REQUIRE(during.hostPointer == ordinary.data() + 12345);
  CHECK(cudaHostUnregister(ordinary.data()));
  auto after = Ask("unregistered", ordinary.data());
  REQUIRE(after.type == cudaMemoryTypeUnregistered);

  void* symbol = nullptr;
  CHECK(cudaGetSymbolAddress(&symbol, global_array));
  REQUIRE(Ask("symbol", symbol).type == cudaMemoryTypeDevice);
  void* ordered = nullptr;
  CHECK(cudaMallocAsync(&ordered, 1000, nullptr));
  REQUIRE(Ask("cudaMallocAsync", ordered).type == cudaMemoryTypeDevice);
  CHECK(cudaFreeAsync(ordered, nullptr));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(device));
  return check::Ok();
}
