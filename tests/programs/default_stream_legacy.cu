// The legacy default stream. It waits for all blocking streams and they wait for it. Non-blocking
// streams are not ordered with it.
#include "gate.h"

constexpr int kCount = 8192;

__global__ void Multiply(unsigned* x, unsigned factor, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = x[i] * factor + 1;
}

__global__ void AddTo(const unsigned* x, unsigned* y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = y[i] * 5 + x[i];
}

int main() {
  constexpr int kBlocks = kCount / 128;
  check::Random random(10);
  std::vector<unsigned> x(kCount), y(kCount), z(kCount);
  for (int i = 0; i < kCount; ++i) {
    x[i] = random.Next32();
    y[i] = random.Next32();
    z[i] = random.Next32();
  }
  unsigned* device_x = check::Upload(x);
  unsigned* device_y = check::Upload(y);
  unsigned* device_z = check::Upload(z);
  cudaStream_t first, second, apart;
  CHECK(cudaStreamCreate(&first));
  CHECK(cudaStreamCreate(&second));
  CHECK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
  // The code is loaded before any gate is closed.
  Multiply<<<1, 32>>>(device_x, 1, 0);
  AddTo<<<1, 32>>>(device_x, device_y, 0);
  CHECK(cudaDeviceSynchronize());

  // A chain through three streams. Only the default stream's rules order it.
  for (unsigned round = 0; round < 8; ++round) {
    Multiply<<<kBlocks, 128, 0, first>>>(device_x, 3 + round, kCount);
    AddTo<<<kBlocks, 128>>>(device_x, device_y, kCount);
    AddTo<<<kBlocks, 128, 0, second>>>(device_y, device_z, kCount);
    AddTo<<<kBlocks, 128>>>(device_z, device_x, kCount);
  }
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) {
    for (unsigned round = 0; round < 8; ++round) {
      x[i] = x[i] * (3 + round) + 1;
      y[i] = y[i] * 5 + x[i];
      z[i] = z[i] * 5 + y[i];
      x[i] = x[i] * 5 + z[i];
    }
  }
  check::Compare("x", check::Download(device_x, kCount), x);
  check::Compare("y", check::Download(device_y, kCount), y);
  check::Compare("z", check::Download(device_z, kCount), z);

  // While a blocking stream is held back, the default stream is, too, and so is the other blocking
  // stream.
  Gate gate;
  gate.Close(first);
  Multiply<<<kBlocks, 128>>>(device_x, 7, kCount);
  Multiply<<<kBlocks, 128, 0, second>>>(device_y, 7, kCount);
  EXPECT(cudaStreamQuery(first), cudaErrorNotReady);
  EXPECT(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  EXPECT(cudaStreamQuery(second), cudaErrorNotReady);
  CHECK(cudaStreamQuery(apart));
  Multiply<<<kBlocks, 128, 0, apart>>>(device_z, 7, kCount);
  CHECK(cudaStreamSynchronize(apart));
  EXPECT(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  gate.Open();
  CHECK(cudaStreamSynchronize(second));
  check::WaitUntilReady(cudaStreamLegacy);
  check::WaitUntilReady(first);

  // While a non-blocking stream is held back, the others finish.
  gate.Close(apart);
  Multiply<<<kBlocks, 128, 0, apart>>>(device_z, 9, kCount);
  Multiply<<<kBlocks, 128>>>(device_x, 9, kCount);
  Multiply<<<kBlocks, 128, 0, first>>>(device_y, 9, kCount);
  CHECK(cudaStreamSynchronize(first));
  CHECK(cudaStreamSynchronize(nullptr));
  EXPECT(cudaStreamQuery(apart), cudaErrorNotReady);
  gate.Open();
  CHECK(cudaDeviceSynchronize());
  for (auto* values : {&x, &y, &z}) {
    for (unsigned& value : *values) value = (value * 7 + 1) * 9 + 1;
  }
  check::Compare("x", check::Download(device_x, kCount), x);
  check::Compare("y", check::Download(device_y, kCount), y);
  check::Compare("z", check::Download(device_z, kCount), z);
  for (cudaStream_t stream : {first, second, apart}) CHECK(cudaStreamDestroy(stream));
  for (unsigned* memory : {device_x, device_y, device_z}) CHECK(cudaFree(memory));
  return check::Ok();
}
