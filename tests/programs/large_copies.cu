// Copies of many megabytes between pageable memory and the device, with odd sizes and offsets.
#include "check.h"

constexpr std::size_t kBytes = (32 << 20) + 4321;

__global__ void Sample(const unsigned char* data, std::size_t stride, unsigned char* out,
                       int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = data[i * stride];
}

int main() {
  std::vector<unsigned char> host(kBytes), back(kBytes);
  std::uint64_t state = 1;
  for (std::size_t i = 0; i + 8 <= kBytes; i += 8) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    std::memcpy(&host[i], &state, 8);
  }
  unsigned char *device = nullptr, *second = nullptr, *samples = nullptr;
  CHECK(cudaMalloc(&device, kBytes));
  CHECK(cudaMalloc(&second, kBytes));
  constexpr int kSamples = 1000;
  samples = check::Zeroed<unsigned char>(kSamples);

  CHECK(cudaMemcpy(device, host.data(), kBytes, cudaMemcpyHostToDevice));
  const std::size_t stride = kBytes / kSamples;
  Sample<<<(kSamples + 63) / 64, 64>>>(device, stride, samples, kSamples);
  CHECK(cudaGetLastError());
  std::vector<unsigned char> want(kSamples);
  for (int i = 0; i < kSamples; ++i) want[i] = host[i * stride];
  check::Compare("samples", check::Download(samples, kSamples), want);
  CHECK(cudaMemcpy(back.data(), device, kBytes, cudaMemcpyDeviceToHost));
  check::Compare("there and back", back, host);

  // Pieces of odd sizes at odd places, one after the other in a stream. Each overlaps earlier ones.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  check::Random random(21);
  for (int piece = 0; piece < 12; ++piece) {
    std::size_t size = 1 + random.Next32() % (5u << 20);
    std::size_t from = random.Next64() % (kBytes - size), to = random.Next64() % (kBytes - size);
    CHECK(cudaMemcpyAsync(device + to, host.data() + from, size, cudaMemcpyHostToDevice, stream));
    std::memcpy(&back[to], &host[from], size);
  }
  CHECK(cudaMemcpyAsync(second + 3, device + 1000001, (8 << 20) + 5, cudaMemcpyDeviceToDevice,
                        stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<unsigned char> got(kBytes);
  CHECK(cudaMemcpyAsync(got.data(), device, kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  check::Compare("pieces", got, back);
  std::vector<unsigned char> moved((8 << 20) + 5);
  CHECK(cudaMemcpy(moved.data(), second + 3, moved.size(), cudaMemcpyDeviceToHost));
  check::Compare("within the device", moved.data(), back.data() + 1000001, moved.size());

  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  CHECK(cudaFree(second));
  CHECK(cudaFree(samples));
  return check::Ok();
}
