// The memory that pools hold: statistics and their high-water marks, release thresholds, trimming,
// limits.
#include "check.h"

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uint64_t Get(cudaMemPool_t pool, cudaMemPoolAttr which) {
  std::uint64_t value = 0;
  CHECK(cudaMemPoolGetAttribute(pool, which, &value));
  return value;
}

void Set(cudaMemPool_t pool, cudaMemPoolAttr which, std::uint64_t value) {
  CHECK(cudaMemPoolSetAttribute(pool, which, &value));
}

cudaMemPoolProps Properties() {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 0;
  return properties;
}

__global__ void Fill(unsigned* values, std::size_t count, unsigned seed) {
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) values[i] = static_cast<unsigned>(i) * 2654435761u + seed;
}

int main() {
  const auto used = cudaMemPoolAttrUsedMemCurrent, used_high = cudaMemPoolAttrUsedMemHigh;
  const auto reserved = cudaMemPoolAttrReservedMemCurrent;
  const auto reserved_high = cudaMemPoolAttrReservedMemHigh;
  const auto threshold = cudaMemPoolAttrReleaseThreshold;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const cudaMemPoolProps properties = Properties();
  cudaMemPool_t pool = nullptr;
  CHECK(cudaMemPoolCreate(&pool, &properties));
  std::printf("new: used %llu, reserved %llu, threshold %llu\n",
              static_cast<unsigned long long>(Get(pool, used)),
              static_cast<unsigned long long>(Get(pool, reserved)),
              static_cast<unsigned long long>(Get(pool, threshold)));

  // Two allocations. The pool reports their bytes as used, and reserves at least as many.
  unsigned *a = nullptr, *b = nullptr;
  CHECK(cudaMallocFromPoolAsync(&a, 32 * kMiB, pool, stream));
  CHECK(cudaMallocFromPoolAsync(&b, 64 * kMiB, pool, stream));
  std::printf("two: used %llu MiB, reserved enough %d\n",
              static_cast<unsigned long long>(Get(pool, used) / kMiB),
              Get(pool, reserved) >= 96 * kMiB);
  const std::size_t count = 32 * kMiB / sizeof(unsigned);
  Fill<<<static_cast<unsigned>(count / 256), 256, 0, stream>>>(a, count, 5);
  CHECK(cudaStreamSynchronize(stream));
  std::vector<unsigned> want(count);
  for (std::size_t i = 0; i < count; ++i) want[i] = static_cast<unsigned>(i) * 2654435761u + 5;
  check::Compare("memory of the pool", check::Download(a, count), want);

  // Without a threshold, free memory is released at the next synchronization. High-water marks
  // stay.
  CHECK(cudaFreeAsync(b, stream));
  CHECK(cudaFreeAsync(a, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::printf("freed: used %llu, reserved %llu, high marks %llu MiB, enough %d\n",
              static_cast<unsigned long long>(Get(pool, used)),
              static_cast<unsigned long long>(Get(pool, reserved)),
              static_cast<unsigned long long>(Get(pool, used_high) / kMiB),
              Get(pool, reserved_high) >= 96 * kMiB);
  Set(pool, used_high, 0);
  Set(pool, reserved_high, 0);
  std::printf("marks set back: %llu %llu\n", static_cast<unsigned long long>(Get(pool, used_high)),
              static_cast<unsigned long long>(Get(pool, reserved_high)));
  std::uint64_t one = 1;
  EXPECT(cudaMemPoolSetAttribute(pool, used_high, &one), cudaErrorInvalidValue);
  EXPECT(cudaMemPoolSetAttribute(pool, used, &one), cudaErrorInvalidValue);

  // With a threshold it stays until it is trimmed.
  Set(pool, threshold, UINT64_MAX);
  std::printf("threshold %d\n", Get(pool, threshold) == UINT64_MAX);
  CHECK(cudaMallocFromPoolAsync(&a, 64 * kMiB, pool, stream));
  CHECK(cudaFreeAsync(a, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::printf("held %d, used %llu\n", Get(pool, reserved) >= 64 * kMiB,
              static_cast<unsigned long long>(Get(pool, used)));
  CHECK(cudaMemPoolTrimTo(pool, 256 * kMiB));
  std::printf("trimmed to more: held %d\n", Get(pool, reserved) >= 64 * kMiB);
  CHECK(cudaMemPoolTrimTo(pool, 0));
  std::printf("trimmed: %llu\n", static_cast<unsigned long long>(Get(pool, reserved)));

  // A limit on the pool's size.
  cudaMemPoolProps limited = properties;
  limited.maxSize = 64 * kMiB;
  cudaMemPool_t small = nullptr;
  CHECK(cudaMemPoolCreate(&small, &limited));
  EXPECT(cudaMallocFromPoolAsync(&a, 128 * kMiB, small, stream), cudaErrorMemoryAllocation);
  CHECK(cudaMallocFromPoolAsync(&a, 16 * kMiB, small, stream));
  CHECK(cudaMemsetAsync(a, 1, 16 * kMiB, stream));
  // A pool may be destroyed before its memory is freed.
  CHECK(cudaMemPoolDestroy(small));
  CHECK(cudaMemsetAsync(a, 2, 16 * kMiB, stream));
  CHECK(cudaFreeAsync(a, stream));
  CHECK(cudaStreamSynchronize(stream));

  CHECK(cudaMemPoolDestroy(pool));
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
