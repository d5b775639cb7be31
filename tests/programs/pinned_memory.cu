// Pinned host memory: asynchronous copies, and mapped memory that kernels read and write in place.
#include "check.h"

constexpr int kCount = 20000;

__global__ void Transform(const int* in, int* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = 3 * in[i] - i;
}

__global__ void AddAll(int* const* parts, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) *parts[i] += i;
}

// Programs may have very many allocations, small and large.
void UseMany(int count, std::size_t bytes) {
  std::vector<int*> parts(count);
  for (int*& part : parts) CHECK(cudaMallocHost(&part, bytes));
  for (int i = 0; i < count; ++i) *parts[i] = 2 * i;
  int** list = nullptr;
  CHECK(cudaMalloc(&list, count * sizeof(int*)));
  CHECK(cudaMemcpy(list, parts.data(), count * sizeof(int*), cudaMemcpyDefault));
  AddAll<<<(count + 255) / 256, 256>>>(list, count);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < count; ++i) REQUIRE(*parts[i] == 3 * i);
  for (int* const part : parts) CHECK(cudaFreeHost(part));
  CHECK(cudaFree(list));
  std::printf("%d allocations of %zu bytes are right\n", count, bytes);
}

int main() {
  UseMany(5000, 100);
  UseMany(300, 1'100'000);

  // Zero copy: the kernel works on host memory, also through pointers into the middle of the
  // allocations.
  int* in = nullptr;
  int* out = nullptr;
  CHECK(cudaHostAlloc(&in, kCount * sizeof(int), cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&out, kCount * sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
  unsigned int flags = 0;
  CHECK(cudaHostGetFlags(&flags, out));
  REQUIRE((flags & cudaHostAllocMapped) != 0);

  std::vector<int> want(kCount);
  int* device_in = nullptr;
  int* device_out = nullptr;
  CHECK(cudaHostGetDevicePointer(&device_in, in, 0));
  CHECK(cudaHostGetDevicePointer(&device_out, out, 0));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kCount; ++i) {
      in[i] = i * 17 + round;
      out[i] = -1;
      want[i] = 3 * in[i] - i;
    }
    Transform<<<(kCount + 127) / 128, 128>>>(device_in, device_out, kCount);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    check::Compare("mapped", out, want.data(), kCount);
  }
  constexpr int kOffset = 1234;
  std::memset(out, 0, kCount * sizeof(int));
  Transform<<<1, 64>>>(device_in + kOffset, device_out + kOffset, 50);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) {
    bool inside = i >= kOffset && i < kOffset + 50;
    want[i] = inside ? 3 * in[i] - (i - kOffset) : 0;
  }
  check::Compare("mapped part", out, want.data(), kCount);

  // Asynchronous copies in one stream from and to pinned memory, in pieces.
  int* source = nullptr;
  int* target = nullptr;
  CHECK(cudaMallocHost(&source, kCount * sizeof(int)));
  CHECK(cudaHostAlloc(&target, kCount * sizeof(int), cudaHostAllocDefault));
  for (int i = 0; i < kCount; ++i) {
    source[i] = i ^ 0x5a5a;
    target[i] = 0;
    want[i] = 3 * source[i] - i;
  }
  int* device_source = check::Zeroed<int>(kCount);
  int* device_target = check::Zeroed<int>(kCount);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  constexpr int kPiece = kCount / 8;
  for (int piece = 0; piece < 8; ++piece) {
    CHECK(cudaMemcpyAsync(device_source + piece * kPiece, source + piece * kPiece,
                          kPiece * sizeof(int), cudaMemcpyHostToDevice, stream));
  }
  Transform<<<(kCount + 127) / 128, 128, 0, stream>>>(device_source, device_target, kCount);
  for (int piece = 7; piece >= 0; --piece) {
    CHECK(cudaMemcpyAsync(target + piece * kPiece, device_target + piece * kPiece,
                          kPiece * sizeof(int), cudaMemcpyDeviceToHost, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  check::Compare("asynchronous", target, want.data(), kCount);

  // Write-combined memory. The device reads it, and the host does not.
  int* combined = nullptr;
  CHECK(cudaHostAlloc(&combined, 1000 * sizeof(int),
                      cudaHostAllocWriteCombined | cudaHostAllocMapped));
  for (int i = 0; i < 1000; ++i) combined[i] = want[i] = 7 * i;
  CHECK(cudaMemcpy(device_source, combined, 1000 * sizeof(int), cudaMemcpyHostToDevice));
  want.resize(1000);
  check::Compare("write combined", check::Download(device_source, 1000), want);

  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device_source));
  CHECK(cudaFree(device_target));
  CHECK(cudaFreeHost(combined));
  CHECK(cudaFreeHost(source));
  CHECK(cudaFreeHost(target));
  CHECK(cudaFreeHost(in));
  CHECK(cudaFreeHost(out));
  return check::Ok();
}
