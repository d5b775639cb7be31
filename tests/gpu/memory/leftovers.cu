// Checks whether memory still has contents of an earlier program.
//
//   leftovers write    fills memory of every kind with a pattern, prints how much, and ends
//   leftovers read     gets memory of every kind, and prints for each how many words have it
//
// Kinds: allocations, pools, physical memory of cuMemCreate, arrays, variables of code, pinned and
// managed memory. For each kind of device memory the program takes one or two tenths of the free
// memory.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/gpu/memory/pattern.h"

namespace {

constexpr size_t kPinnedBytes = 4 << 20;
constexpr int kVariableWords = 1 << 18;

__device__ uint32_t g_variable[kVariableWords];

bool g_writes = false;
unsigned long long g_found_in_all = 0;

unsigned long long Found(const char* kind, const uint32_t* words, size_t count) {
  cudaError_t error = cudaSuccess;
  const unsigned long long found = CountPattern(words, count, &error);
  Check(error, kind);
  return found;
}

void Visit(const char* kind, uint32_t* words, size_t bytes) {
  const size_t count = bytes / sizeof(uint32_t);
  if (g_writes) {
    Fill<<<64, 256>>>(words, count, kPattern);
    Check(cudaDeviceSynchronize(), kind);
    return;
  }
  const unsigned long long found = Found(kind, words, count);
  std::printf("%s: %llu words of another program\n", kind, found);
  g_found_in_all += found;
  // A reader that found nothing must show that it can find the pattern.
  Fill<<<64, 256>>>(words, count, kPattern);
  if (Found(kind, words, count) != count) {
    std::printf("%s: does not see its own words\n", kind);
    std::exit(1);
  }
}

void VisitPhysical(size_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  size_t unit = 0;
  Check(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");
  bytes = (bytes + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address = 0;
  CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  Check(cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
  Check(cuMemAddressReserve(&address, bytes, 0, 0, 0), "cuMemAddressReserve");
  Check(cuMemMap(address, bytes, 0, handle, 0), "cuMemMap");
  Check(cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
  Visit("cuMemCreate", reinterpret_cast<uint32_t*>(address), bytes);
}

// Arrays have no addresses, so their words are copied.
void VisitArray(size_t bytes) {
  // At most as many rows as an array of a real GPU may have. The copy on the host stays small.
  const size_t width = 4096,
               height = std::min<size_t>(bytes / (width * sizeof(uint32_t)) + 1, 16384);
  cudaChannelFormatDesc format = cudaCreateChannelDesc<uint32_t>();
  cudaArray_t array = nullptr;
  Check(cudaMallocArray(&array, &format, width, height), "cudaMallocArray");
  std::vector<uint32_t> words(width * height, kPattern);
  const size_t row = width * sizeof(uint32_t);
  if (g_writes) {
    Check(cudaMemcpy2DToArray(array, 0, 0, words.data(), row, row, height, cudaMemcpyHostToDevice),
          "cudaMemcpy2DToArray");
    return;
  }
  Check(cudaMemcpy2DFromArray(words.data(), row, array, 0, 0, row, height, cudaMemcpyDeviceToHost),
        "cudaMemcpy2DFromArray");
  unsigned long long found = 0;
  for (const uint32_t word : words) found += word == kPattern;
  std::printf("cudaMallocArray: %llu words of another program\n", found);
  g_found_in_all += found;
}

}  // namespace

int main(int argc, char** argv) {
  g_writes = argc == 2 && std::strcmp(argv[1], "write") == 0;
  if (argc != 2 || (!g_writes && std::strcmp(argv[1], "read") != 0)) {
    std::printf("leftovers write|read\n");
    return 2;
  }
  size_t free = 0, total = 0;
  Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const size_t part = free / 10 / 4096 * 4096;

  uint32_t* words = nullptr;
  Check(cudaMalloc(&words, 2 * part), "cudaMalloc");
  Visit("cudaMalloc", words, 2 * part);
  for (int i = 0; i < 8; ++i) {  // several share a granule
    Check(cudaMalloc(&words, 5000), "cudaMalloc");
    if (g_writes) Visit("cudaMalloc", words, 5000);
  }
  uint32_t* pooled = nullptr;
  Check(cudaMallocAsync(&pooled, 2 * part, nullptr), "cudaMallocAsync");
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  Visit("cudaMallocAsync", pooled, 2 * part);
  VisitPhysical(2 * part);
  VisitArray(part);
  uint32_t* variable = nullptr;
  Check(cudaGetSymbolAddress(reinterpret_cast<void**>(&variable), g_variable),
        "cudaGetSymbolAddress");
  Visit("__device__", variable, sizeof(uint32_t) * kVariableWords);
  uint32_t* pinned = nullptr;
  Check(cudaMallocHost(&pinned, kPinnedBytes), "cudaMallocHost");
  Visit("cudaMallocHost", pinned, kPinnedBytes);
  uint32_t* managed = nullptr;
  Check(cudaMallocManaged(&managed, kPinnedBytes), "cudaMallocManaged");
  Visit("cudaMallocManaged", managed, kPinnedBytes);
  if (g_writes) std::printf("written\n");
  if (!g_writes) std::printf(g_found_in_all == 0 ? "ok\n" : "NOT SCRUBBED\n");
  return g_writes || g_found_in_all == 0 ? 0 : 1;
}
