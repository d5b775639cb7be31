// Two-dimensional copies between pitched allocations and the host: all directions, parts with
// offsets, synchronous and asynchronous, and the errors for pitches that are too small.
#include "check.h"

constexpr int kWidth = 219;  // in elements
constexpr int kHeight = 37;
constexpr int kHostPitch = 250;  // in elements

__global__ void AddOne(std::uint32_t* data, std::size_t pitch, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  auto* row = reinterpret_cast<std::uint32_t*>(reinterpret_cast<char*>(data) + y * pitch);
  row[x] += 1;
}

int main() {
  constexpr std::size_t kElement = sizeof(std::uint32_t);
  std::vector<std::uint32_t> host(kHostPitch * kHeight), back(kHostPitch * kHeight, 7u);
  check::Random random(2);
  for (auto& value : host) value = random.Next32();

  std::uint32_t *a = nullptr, *b = nullptr;
  std::size_t pitch_a = 0, pitch_b = 0;
  CHECK(cudaMallocPitch(&a, &pitch_a, kWidth * kElement, kHeight));
  CHECK(cudaMallocPitch(&b, &pitch_b, (kWidth + 300) * kElement, kHeight + 5));
  REQUIRE(pitch_a >= kWidth * kElement && pitch_a % 32 == 0);
  REQUIRE(pitch_b >= (kWidth + 300) * kElement && pitch_b % 32 == 0);

  // To the device, changed there, and back. The host's bytes between the rows stay.
  CHECK(cudaMemcpy2D(a, pitch_a, host.data(), kHostPitch * kElement, kWidth * kElement, kHeight,
                     cudaMemcpyHostToDevice));
  AddOne<<<dim3((kWidth + 31) / 32, (kHeight + 7) / 8), dim3(32, 8)>>>(a, pitch_a, kWidth, kHeight);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy2D(back.data(), kHostPitch * kElement, a, pitch_a, kWidth * kElement, kHeight,
                     cudaMemcpyDeviceToHost));
  std::vector<std::uint32_t> want(kHostPitch * kHeight, 7u);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) want[y * kHostPitch + x] = host[y * kHostPitch + x] + 1;
  }
  check::Compare("there and back", back, want);

  // A part between two device allocations of different pitch, at its own row and column.
  CHECK(cudaMemset2D(b, pitch_b, 0xab, (kWidth + 300) * kElement, kHeight + 5));
  char* to = reinterpret_cast<char*>(b) + 3 * pitch_b + 11 * kElement;
  const char* from = reinterpret_cast<const char*>(a) + 5 * pitch_a + 2 * kElement;
  CHECK(cudaMemcpy2D(to, pitch_b, from, pitch_a, 100 * kElement, 20, cudaMemcpyDeviceToDevice));
  const int wide = kWidth + 300, high = kHeight + 5;
  std::vector<std::uint32_t> all(wide * high), want_all(wide * high, 0xababababu);
  CHECK(cudaMemcpy2D(all.data(), wide * kElement, b, pitch_b, wide * kElement, high,
                     cudaMemcpyDefault));
  for (int y = 0; y < 20; ++y) {
    for (int x = 0; x < 100; ++x) {
      want_all[(y + 3) * wide + x + 11] = host[(y + 5) * kHostPitch + x + 2] + 1;
    }
  }
  check::Compare("part", all, want_all);

  // An asynchronous copy from and to pinned memory, of one column with an odd width in bytes.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  unsigned char *pinned_in = nullptr, *pinned_out = nullptr;
  CHECK(cudaMallocHost(&pinned_in, 64 * 101));
  CHECK(cudaMallocHost(&pinned_out, 64 * 77));
  for (int i = 0; i < 64 * 101; ++i) pinned_in[i] = static_cast<unsigned char>(i * 7);
  std::memset(pinned_out, 9, 64 * 77);
  unsigned char* bytes = nullptr;
  std::size_t pitch_bytes = 0;
  CHECK(cudaMallocPitch(&bytes, &pitch_bytes, 61, 64));
  CHECK(cudaMemset2DAsync(bytes, pitch_bytes, 1, 61, 64, stream));
  CHECK(cudaMemcpy2DAsync(bytes + 3, pitch_bytes, pinned_in + 5, 101, 57, 60,
                          cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemcpy2DAsync(pinned_out, 77, bytes, pitch_bytes, 61, 64, cudaMemcpyDeviceToHost,
                          stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<unsigned char> want_bytes(64 * 77, 9);
  for (int y = 0; y < 64; ++y) {
    for (int x = 0; x < 61; ++x) {
      bool copied = y < 60 && x >= 3 && x < 60;
      want_bytes[y * 77 + x] = copied ? pinned_in[y * 101 + 5 + x - 3] : 1;
    }
  }
  check::Compare("asynchronous", pinned_out, want_bytes.data(), want_bytes.size());

  // An empty copy succeeds. A row that is longer than the pitch is an error.
  CHECK(cudaMemcpy2D(a, pitch_a, host.data(), kHostPitch * kElement, 0, 0, cudaMemcpyHostToDevice));
  EXPECT_ERROR(cudaMemcpy2D(a, pitch_a, host.data(), 8, 16, 2, cudaMemcpyHostToDevice));

  CHECK(cudaFreeHost(pinned_in));
  CHECK(cudaFreeHost(pinned_out));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(bytes));
  CHECK(cudaFree(a));
  CHECK(cudaFree(b));
  return check::Ok();
}
