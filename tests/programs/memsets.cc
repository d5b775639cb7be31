// Memsets of the runtime: odd starts and lengths, rows of pitched memory, in streams, and beside
// copies.
#include "check.h"

int main() {
  constexpr int kBytes = 40000;
  unsigned char* device = nullptr;
  CHECK(cudaMalloc(&device, kBytes));
  std::vector<unsigned char> want(kBytes);
  auto set = [&](std::size_t from, int value, std::size_t count) {
    std::memset(want.data() + from, value, count);
  };
  CHECK(cudaMemset(device, 0x5a, kBytes));
  set(0, 0x5a, kBytes);
  check::Compare("whole", check::Download(device, kBytes), want);

  for (std::size_t from : {1u, 2u, 3u, 5u, 1023u, 4097u}) {
    for (std::size_t count : {0u, 1u, 2u, 3u, 4u, 15u, 17u, 513u}) {
      int value = static_cast<int>(from * 31 + count);
      CHECK(cudaMemset(device + from, value, count));
      set(from, value & 0xff, count);
    }
  }
  check::Compare("odd", check::Download(device, kBytes), want);

  // In a stream: a memset over a copy over a memset. In each part the last one wins.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  unsigned char* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, kBytes));
  for (int i = 0; i < kBytes; ++i) pinned[i] = static_cast<unsigned char>(i >> 3);
  CHECK(cudaMemsetAsync(device, 0xff, kBytes, stream));
  CHECK(cudaMemcpyAsync(device + 100, pinned + 100, kBytes - 200, cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemsetAsync(device + 20001, 0x77, 9999, stream));
  CHECK(cudaStreamSynchronize(stream));
  set(0, 0xff, kBytes);
  std::memcpy(want.data() + 100, pinned + 100, kBytes - 200);
  set(20001, 0x77, 9999);
  check::Compare("stream", check::Download(device, kBytes), want);

  // Rows: 41 bytes of every 100.
  CHECK(cudaMemset2D(device + 7, 100, 0xee, 41, 300));
  for (int row = 0; row < 300; ++row) set(7 + row * 100, 0xee, 41);
  check::Compare("rows", check::Download(device, kBytes), want);

  // The device can also set pinned host memory.
  CHECK(cudaMemsetAsync(pinned + 1, 0x3c, 1000, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<unsigned char> want_pinned(1000, 0x3c);
  check::Compare("pinned", pinned + 1, want_pinned.data(), 1000);

  CHECK(cudaFreeHost(pinned));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  return check::Ok();
}
