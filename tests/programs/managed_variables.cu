// Variables that host and device see at one address: __managed__.
#include "check.h"

struct Particle {
  double position[3];
  int hits;
};

__managed__ int counter = 7;
__managed__ int table[1000];
__managed__ Particle particles[3] = {{{1, 2, 3}, 4}, {{5, 6, 7}, 8}};
__managed__ const char* never_set;
static __managed__ long long hidden = 1ll << 40;
__device__ int ordinary = 3;

__global__ void Touch(int step) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 1000) table[i] = table[i] * 2 + i + ordinary;
  atomicAdd(&counter, step);
  if (i < 3) {
    particles[i].position[i] += 0.5;
    particles[i].hits += 1;
  }
  if (i == 0) hidden *= 3;
}

__global__ void Addresses(unsigned long long* out) {
  out[0] = reinterpret_cast<unsigned long long>(&counter);
  out[1] = reinterpret_cast<unsigned long long>(table);
  out[2] = reinterpret_cast<unsigned long long>(particles);
}

int main() {
  // The host uses the variables first.
  std::printf("at first: %d %d %g %d %g %d %lld\n", counter, table[999], particles[0].position[2],
              particles[1].hits, particles[2].position[0], never_set == nullptr, hidden);
  std::vector<int> want(1000);
  for (int i = 0; i < 1000; ++i) table[i] = want[i] = 1000 - i;
  counter = 100;
  Touch<<<8, 128>>>(2);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 1000; ++i) want[i] = want[i] * 2 + i + 3;
  check::Compare("the device after the host", table, want.data(), 1000);
  std::printf("counter %d, hits %d %d %d, positions %g %g %g, hidden %lld\n", counter,
              particles[0].hits, particles[1].hits, particles[2].hits, particles[0].position[0],
              particles[1].position[1], particles[2].position[2], hidden);

  // Host and device see the same address.
  auto* seen = check::Zeroed<unsigned long long>(3);
  Addresses<<<1, 1>>>(seen);
  const std::vector<unsigned long long> addresses = check::Download(seen, 3);
  std::printf("same addresses %d %d %d\n",
              addresses[0] == reinterpret_cast<unsigned long long>(&counter),
              addresses[1] == reinterpret_cast<unsigned long long>(table),
              addresses[2] == reinterpret_cast<unsigned long long>(particles));
  void* symbol = nullptr;
  std::size_t bytes = 0;
  CHECK(cudaGetSymbolAddress(&symbol, table));
  CHECK(cudaGetSymbolSize(&bytes, table));
  std::printf("symbol %d, %zu bytes\n", symbol == table, bytes);
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, &table[5]));
  std::printf("type %s, same pointers %d\n",
              attributes.type == cudaMemoryTypeManaged ? "managed" : "other",
              attributes.devicePointer == &table[5] && attributes.hostPointer == &table[5]);

  // Copies, by pointer and by symbol.
  int value = 12;
  CHECK(cudaMemcpyToSymbol(counter, &value, sizeof value));
  std::printf("counter %d\n", counter);
  CHECK(cudaMemset(table, 0, sizeof table));
  CHECK(cudaMemcpy(table + 10, want.data(), 40, cudaMemcpyDefault));
  CHECK(cudaDeviceSynchronize());
  std::printf("table %d %d %d %d\n", table[9], table[10], table[19], table[20]);
  value = 0;
  CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
  std::printf("from symbol %d\n", value);
  EXPECT(cudaFree(table), cudaErrorInvalidValue);

  // In a stream's order, many times.
  for (int i = 0; i < 50; ++i) Touch<<<1, 32>>>(1);
  CHECK(cudaDeviceSynchronize());
  std::printf("counter %d\n", counter);
  CHECK(cudaFree(seen));
  return check::Ok();
}
