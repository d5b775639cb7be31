// Several host threads at once. Each has its own stream, memory and events, and all use one shared
// buffer.
#include <string>
#include <thread>

#include "check.h"

constexpr int kThreads = 6;
constexpr int kRounds = 12;
constexpr int kCount = 3000;

__global__ void Step(unsigned* own, unsigned* shared, unsigned seed, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  own[i] = own[i] * 22695477u + seed;
  atomicAdd(&shared[i], own[i]);
}

void Work(int t, unsigned* shared, std::vector<unsigned>* result) {
  CHECK(cudaSetDevice(0));
  cudaStream_t stream;
  cudaEvent_t done;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  result->assign(kCount, t);
  unsigned* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, kCount * sizeof(unsigned)));
  for (int round = 0; round < kRounds; ++round) {
    // Memory is allocated and freed while the other threads work.
    unsigned* own = nullptr;
    CHECK(cudaMalloc(&own, kCount * sizeof(unsigned)));
    std::memcpy(pinned, result->data(), kCount * sizeof(unsigned));
    CHECK(cudaMemcpyAsync(own, pinned, kCount * sizeof(unsigned), cudaMemcpyHostToDevice, stream));
    Step<<<(kCount + 63) / 64, 64, 0, stream>>>(own, shared, t * 1000 + round, kCount);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(pinned, own, kCount * sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaEventRecord(done, stream));
    CHECK(cudaEventSynchronize(done));
    std::memcpy(result->data(), pinned, kCount * sizeof(unsigned));
    CHECK(cudaFree(own));
  }
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaEventDestroy(done));
  CHECK(cudaStreamDestroy(stream));
}

int main() {
  unsigned* shared = check::Zeroed<unsigned>(kCount);
  std::vector<unsigned> results[kThreads];
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(Work, t, shared, &results[t]);
  for (std::thread& thread : threads) thread.join();

  std::vector<unsigned> want_shared(kCount, 0);
  for (int t = 0; t < kThreads; ++t) {
    std::vector<unsigned> want(kCount, t);
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kCount; ++i) {
        want[i] = want[i] * 22695477u + t * 1000 + round;
        want_shared[i] += want[i];
      }
    }
    std::string what = "thread " + std::to_string(t);
    check::Compare(what.c_str(), results[t], want);
  }
  check::Compare("shared", check::Download(shared, kCount), want_shared);
  CHECK(cudaFree(shared));
  return check::Ok();
}
