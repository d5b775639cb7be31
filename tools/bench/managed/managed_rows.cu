// What managed and pinned memory cost: one row of JSON for each measurement.
//
//   managed_rows [MIB]   the size of the large allocation (default: 256)
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define CHECK(call)                                                       \
  do {                                                                    \
    if (const cudaError_t error = (call); error != cudaSuccess) {         \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
      std::exit(1);                                                       \
    }                                                                     \
  } while (0)

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(const std::function<void()>& what) {
  const auto begin = Clock::now();
  what();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The median of five.
double Median(const std::function<double()>& measure) {
  std::vector<double> all;
  for (int i = 0; i < 5; ++i) all.push_back(measure());
  std::nth_element(all.begin(), all.begin() + 2, all.end());
  return all[2];
}

void Row(const char* name, const char* unit, double value) {
  std::printf("{\"row\": \"%s\", \"unit\": \"%s\", \"value\": %.6g}\n", name, unit, value);
}

__global__ void AddOne(float4* values, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    float4 value = values[i];
    value.x += 1;
    value.y += 1;
    value.z += 1;
    value.w += 1;
    values[i] = value;
  }
}

__global__ void Count(int* counter, int turns) {
  for (int i = 0; i < turns; ++i) atomicAdd_system(counter, 1);
}

__device__ __managed__ float4 variable[1 << 20];

// A kernel that reads and writes the memory once, in GB/s.
double Bandwidth(void* memory, size_t bytes) {
  const double seconds = Seconds([&] {
    AddOne<<<1024, 256>>>(static_cast<float4*>(memory), bytes / sizeof(float4));
    CHECK(cudaDeviceSynchronize());
  });
  return 2e-9 * bytes / seconds;
}

using Allocate = cudaError_t (*)(void** memory, size_t bytes);
cudaError_t AllocateManaged(void** memory, size_t bytes) {
  return cudaMallocManaged(memory, bytes);
}
cudaError_t AllocatePinned(void** memory, size_t bytes) { return cudaMallocHost(memory, bytes); }

// Microseconds for one allocation and its end, of `count` that exist at once.
double Cycle(Allocate allocate, cudaError_t (*release)(void*), size_t bytes, int count) {
  std::vector<void*> all(count);
  return 1e6 / count * Seconds([&] {
           for (void*& one : all) CHECK(allocate(&one, bytes));
           for (void* const one : all) CHECK(release(one));
         });
}

// Of all additions of both, the part that the counter has.
double Together() {
  constexpr int kThreads = 256, kTurns = 2000, kOwn = 200'000;
  int* counter;
  CHECK(cudaMallocManaged(&counter, sizeof *counter));
  *counter = 0;
  Count<<<4, kThreads / 4>>>(counter, kTurns);
  for (int i = 0; i < kOwn; ++i) __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
  CHECK(cudaDeviceSynchronize());
  const double part = *counter / double{kThreads * kTurns + kOwn};
  CHECK(cudaFree(counter));
  return part;
}

}  // namespace

int main(int count, char** arguments) {
  const size_t bytes = (count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 256) << 20;
  CHECK(cudaFree(nullptr));
  void *device, *memory;
  CHECK(cudaMalloc(&device, bytes));
  CHECK(cudaMallocManaged(&memory, bytes));
  const auto write = [&] { std::memset(memory, 1, bytes); };
  const cudaMemLocation gpu{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};
  const auto prefetch = [&](const cudaMemLocation& to) {
    return 1e3 * Seconds([&] {
             CHECK(cudaMemPrefetchAsync(memory, bytes, to, 0, nullptr));
             CHECK(cudaDeviceSynchronize());
           });
  };
  Bandwidth(device, bytes);
  write();
  Bandwidth(memory, bytes);
  Row("kernel, device memory", "GB/s", Median([&] { return Bandwidth(device, bytes); }));
  Row("kernel, managed memory", "GB/s", Median([&] { return Bandwidth(memory, bytes); }));
  Row("kernel, __managed__ variable of 16 MiB", "GB/s",
      Median([&] { return Bandwidth(variable, sizeof variable); }));
  Row("kernel, pages that the CPU wrote", "GB/s", Median([&] {
        write();
        return Bandwidth(memory, bytes);
      }));
  Row("CPU writes pages that the GPU wrote", "ms", Median([&] {
        Bandwidth(memory, bytes);
        return 1e3 * Seconds(write);
      }));
  Row("prefetch to the GPU", "ms", Median([&] {
        write();
        return prefetch(gpu);
      }));
  Row("prefetch to the host", "ms", Median([&] {
        Bandwidth(memory, bytes);
        return prefetch(host);
      }));
  CHECK(cudaMemAdvise(memory, bytes, cudaMemAdviseSetPreferredLocation, host));
  CHECK(cudaMemAdvise(memory, bytes, cudaMemAdviseSetAccessedBy, gpu));
  Row("kernel, memory that prefers the host", "GB/s",
      Median([&] { return Bandwidth(memory, bytes); }));
  CHECK(cudaFree(memory));
  Row("allocate + free managed 64 B, 20,000 at once", "us",
      Median([] { return Cycle(AllocateManaged, cudaFree, 64, 20'000); }));
  Row("allocate + free managed 64 MiB", "us",
      Median([] { return Cycle(AllocateManaged, cudaFree, 64 << 20, 1); }));
  Row("allocate + free pinned 64 B, 20,000 at once", "us",
      Median([] { return Cycle(AllocatePinned, cudaFreeHost, 64, 20'000); }));
  Row("allocate + free pinned 2 MB, 500 at once", "us",
      Median([] { return Cycle(AllocatePinned, cudaFreeHost, 2'000'000, 500); }));
  Row("atomic additions of CPU and GPU at once", "% kept", 100 * Together());
}
