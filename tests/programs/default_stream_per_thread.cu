// Compiled with --default-stream per-thread. Each host thread has its own default stream, which is
// ordered with the legacy stream but not with other threads' default streams.
#include <string>
#include <thread>

#include "gate.h"

constexpr int kCount = 4096;
constexpr int kThreads = 4;

__global__ void Step(unsigned* x, unsigned round, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = x[i] * 1664525u + round;
}

int main() {
  std::vector<unsigned> initial(kCount);
  for (int i = 0; i < kCount; ++i) initial[i] = i * 77;
  unsigned* device[kThreads];
  unsigned* pinned[kThreads];
  for (int t = 0; t < kThreads; ++t) {
    device[t] = check::Upload(initial);
    CHECK(cudaMallocHost(&pinned[t], kCount * sizeof(unsigned)));
  }
  Step<<<1, 1>>>(device[0], 0, 0);
  CHECK(cudaDeviceSynchronize());

  // This thread's default stream is held back. All others run to their end at that time.
  Gate gate;
  gate.Close(nullptr);
  Step<<<kCount / 128, 128>>>(device[0], 1, kCount);
  std::vector<std::thread> threads;
  for (int t = 1; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 1; round <= 10; ++round) {
        Step<<<kCount / 128, 128>>>(device[t], round * t, kCount);
        CHECK(cudaGetLastError());
      }
      CHECK(cudaMemcpyAsync(pinned[t], device[t], kCount * sizeof(unsigned), cudaMemcpyDeviceToHost,
                            nullptr));
      CHECK(cudaStreamSynchronize(nullptr));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(cudaStreamQuery(nullptr), cudaErrorNotReady);
  EXPECT(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);

  // The legacy stream waits for this thread's stream.
  Step<<<kCount / 128, 128, 0, cudaStreamLegacy>>>(device[0], 2, kCount);
  EXPECT(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  gate.Open();
  CHECK(cudaMemcpyAsync(pinned[0], device[0], kCount * sizeof(unsigned), cudaMemcpyDeviceToHost,
                        nullptr));
  CHECK(cudaStreamSynchronize(nullptr));
  check::WaitUntilReady(cudaStreamLegacy);

  for (int t = 0; t < kThreads; ++t) {
    std::vector<unsigned> want = initial;
    for (unsigned& value : want) {
      for (unsigned round = 1; round <= (t == 0 ? 2u : 10u); ++round) {
        value = value * 1664525u + round * (t == 0 ? 1 : t);
      }
    }
    std::string what = "thread " + std::to_string(t);
    check::Compare(what.c_str(), pinned[t], want.data(), kCount);
    CHECK(cudaFreeHost(pinned[t]));
    CHECK(cudaFree(device[t]));
  }
  return check::Ok();
}
