// Queries that do not wait. Events and streams are not ready while the stream is held back, and
// become ready after it goes on. A query of an event means its last recording.
#include "gate.h"

constexpr int kCount = 4096;

__global__ void Step(unsigned* x, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = x[i] * 3 + 1;
}

int main() {
  std::vector<unsigned> x(kCount);
  for (int i = 0; i < kCount; ++i) x[i] = i;
  unsigned* device = check::Upload(x);
  cudaStream_t stream, other;
  cudaEvent_t before, after;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&before));
  CHECK(cudaEventCreate(&after));
  // The code is loaded before the gate is closed.
  Step<<<1, 32, 0, stream>>>(device, 0);
  CHECK(cudaDeviceSynchronize());
  for (int round = 0; round < 5; ++round) {
    Gate gate;
    CHECK(cudaEventRecord(before, stream));
    CHECK(cudaEventSynchronize(before));
    gate.Close(stream);
    Step<<<kCount / 128, 128, 0, stream>>>(device, kCount);
    CHECK(cudaEventRecord(after, stream));
    CHECK(cudaEventQuery(before));
    EXPECT(cudaEventQuery(after), cudaErrorNotReady);
    EXPECT(cudaStreamQuery(stream), cudaErrorNotReady);
    float milliseconds = 0.0f;
    EXPECT(cudaEventElapsedTime(&milliseconds, before, after), cudaErrorNotReady);
    // Another stream waits for the recording at the time of the call, and not for later ones.
    CHECK(cudaStreamWaitEvent(other, before, 0));
    CHECK(cudaStreamSynchronize(other));
    CHECK(cudaStreamWaitEvent(other, after, 0));
    EXPECT(cudaStreamQuery(other), cudaErrorNotReady);
    gate.Open();
    while (true) {
      cudaError_t result = cudaEventQuery(after);
      if (result == cudaSuccess) break;
      REQUIRE(result == cudaErrorNotReady);
    }
    cudaGetLastError();
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamSynchronize(other));
    CHECK(cudaEventElapsedTime(&milliseconds, before, after));
    REQUIRE(milliseconds >= 0.0f);
    for (unsigned& value : x) value = value * 3 + 1;
  }
  check::Compare("values", check::Download(device, kCount), x);
  CHECK(cudaEventDestroy(before));
  CHECK(cudaEventDestroy(after));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(other));
  CHECK(cudaFree(device));
  return check::Ok();
}
