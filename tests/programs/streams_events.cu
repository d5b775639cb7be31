// SAXPY in two streams that pass data back and forth with events. Checks the order of timing
// events.
#include <cmath>

#include "check.h"

constexpr int kCount = 32768;
constexpr int kRounds = 6;

__global__ void Scale(float* x, float factor, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = __fmul_rn(x[i], factor);
}

__global__ void Saxpy(float a, const float* x, float* y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = __fmaf_rn(a, x[i], y[i]);
}

int main() {
  check::Random random(3);
  std::vector<float> x(kCount), y(kCount);
  for (float& value : x) value = random.NextFloat();
  for (float& value : y) value = random.NextFloat();

  float* device_x = check::Upload(x);
  float* device_y = check::Upload(y);
  cudaStream_t scaling, adding;
  CHECK(cudaStreamCreateWithFlags(&scaling, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&adding, cudaStreamNonBlocking));
  cudaEvent_t scaled, added, begin, middle, end, unrecorded;
  CHECK(cudaEventCreateWithFlags(&scaled, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&added, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&middle));
  CHECK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
  CHECK(cudaEventCreate(&unrecorded));

  // An event that was never recorded counts as complete, and no wait for it blocks.
  CHECK(cudaEventQuery(unrecorded));
  CHECK(cudaEventSynchronize(unrecorded));
  CHECK(cudaStreamWaitEvent(scaling, unrecorded, 0));

  const int blocks = (kCount + 127) / 128;
  CHECK(cudaEventRecord(begin, scaling));
  for (int round = 0; round < kRounds; ++round) {
    Scale<<<blocks, 128, 0, scaling>>>(device_x, 1.25f, kCount);
    CHECK(cudaEventRecord(scaled, scaling));
    CHECK(cudaStreamWaitEvent(adding, scaled, 0));
    Saxpy<<<blocks, 128, 0, adding>>>(0.5f + round, device_x, device_y, kCount);
    CHECK(cudaEventRecord(added, adding));
    CHECK(cudaStreamWaitEvent(scaling, added, 0));
    if (round == kRounds / 2) CHECK(cudaEventRecord(middle, scaling));
  }
  CHECK(cudaEventRecord(end, scaling));
  CHECK(cudaGetLastError());
  CHECK(cudaEventSynchronize(end));
  check::WaitUntilReady(scaling);
  check::WaitUntilReady(adding);

  for (int i = 0; i < kCount; ++i) {
    for (int round = 0; round < kRounds; ++round) {
      x[i] = x[i] * 1.25f;
      y[i] = std::fmaf(0.5f + round, x[i], y[i]);
    }
  }
  check::Compare("x", check::Download(device_x, kCount), x);
  check::Compare("y", check::Download(device_y, kCount), y);

  float to_middle = -1.0f, to_end = -1.0f, nothing = -1.0f;
  CHECK(cudaEventElapsedTime(&to_middle, begin, middle));
  CHECK(cudaEventElapsedTime(&to_end, begin, end));
  REQUIRE(to_middle >= 0.0f);
  REQUIRE(to_end >= to_middle);
  EXPECT(cudaEventElapsedTime(&nothing, scaled, end), cudaErrorInvalidResourceHandle);
  EXPECT(cudaEventElapsedTime(&nothing, unrecorded, end), cudaErrorInvalidResourceHandle);

  for (cudaEvent_t event : {scaled, added, begin, middle, end, unrecorded}) {
    CHECK(cudaEventDestroy(event));
  }
  CHECK(cudaStreamDestroy(scaling));
  CHECK(cudaStreamDestroy(adding));
  CHECK(cudaFree(device_x));
  CHECK(cudaFree(device_y));
  return check::Ok();
}
