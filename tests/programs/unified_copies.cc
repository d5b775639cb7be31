// One address space. cudaMemcpyDefault finds the direction itself, and copies work between all
// kinds of memory.
#include <string>

#include "check.h"

constexpr int kCount = 30001;

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  std::vector<int> pageable_a(kCount), pageable_b(kCount);
  int *pinned_a = nullptr, *pinned_b = nullptr, *device_a = nullptr, *device_b = nullptr;
  CHECK(cudaMallocHost(&pinned_a, kCount * sizeof(int)));
  CHECK(cudaMallocHost(&pinned_b, kCount * sizeof(int)));
  CHECK(cudaMalloc(&device_a, kCount * sizeof(int)));
  CHECK(cudaMalloc(&device_b, kCount * sizeof(int)));

  struct Place {
    const char* name;
    int* a;
    int* b;
  };
  const Place places[] = {{"pageable", pageable_a.data(), pageable_b.data()},
                          {"pinned", pinned_a, pinned_b},
                          {"device", device_a, device_b}};
  int seed = 0;
  std::vector<int> want(kCount), got(kCount);
  for (const Place& from : places) {
    for (const Place& to : places) {
      for (bool in_stream : {false, true}) {
        ++seed;
        for (int i = 0; i < kCount; ++i) want[i] = i * 31 + seed;
        CHECK(cudaMemcpy(from.a, want.data(), kCount * sizeof(int), cudaMemcpyDefault));
        // All elements except the first and the last, which keep another value.
        std::vector<int> edges(kCount, -seed);
        CHECK(cudaMemcpy(to.b, edges.data(), kCount * sizeof(int), cudaMemcpyDefault));
        const std::size_t bytes = (kCount - 2) * sizeof(int);
        if (in_stream) {
          CHECK(cudaMemcpyAsync(to.b + 1, from.a + 1, bytes, cudaMemcpyDefault, stream));
          CHECK(cudaStreamSynchronize(stream));
        } else {
          CHECK(cudaMemcpy(to.b + 1, from.a + 1, bytes, cudaMemcpyDefault));
        }
        // A copy within the device may still run when the call returns.
        CHECK(cudaDeviceSynchronize());
        want[0] = want[kCount - 1] = -seed;
        CHECK(cudaMemcpy(got.data(), to.b, kCount * sizeof(int), cudaMemcpyDefault));
        std::string what =
            std::string(from.name) + " to " + to.name + (in_stream ? " in a stream" : "");
        check::Compare(what.c_str(), got, want);
      }
    }
  }
  // The program may change the source as soon as an asynchronous copy from pageable memory has
  // returned.
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 1000; ++i) pageable_a[i] = round * 1000 + i;
    CHECK(cudaMemcpyAsync(device_a + round * 1000, pageable_a.data(), 1000 * sizeof(int),
                          cudaMemcpyHostToDevice, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  std::vector<int> counted(20000);
  for (int i = 0; i < 20000; ++i) counted[i] = i;
  check::Compare("staged", check::Download(device_a, 20000), counted);

  CHECK(cudaFreeHost(pinned_a));
  CHECK(cudaFreeHost(pinned_b));
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
