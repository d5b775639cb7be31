// Stream-ordered allocation: cudaMallocAsync and cudaFreeAsync in and between streams, the default
// pool, a pool that the program makes, and the attributes of pools.
#include "check.h"

constexpr int kCount = 10000;

__global__ void Fill(unsigned* x, unsigned seed, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = i * 2654435761u + seed;
}

__global__ void Accumulate(const unsigned* x, unsigned* sum, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = sum[i] * 3 + x[i];
}

int main() {
  int supported = 0;
  CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
  REQUIRE(supported == 1);
  constexpr std::size_t kBytes = kCount * sizeof(unsigned);
  constexpr int kBlocks = (kCount + 127) / 128;
  cudaStream_t stream, other;
  cudaEvent_t event;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  unsigned* sum = check::Zeroed<unsigned>(kCount);
  std::vector<unsigned> want(kCount, 0u);

  // Memory is allocated, used and freed again and again without waiting on the host.
  CHECK(cudaDeviceSynchronize());
  for (unsigned round = 0; round < 12; ++round) {
    unsigned* scratch = nullptr;
    CHECK(cudaMallocAsync(&scratch, kBytes, stream));
    Fill<<<kBlocks, 128, 0, stream>>>(scratch, round, kCount);
    Accumulate<<<kBlocks, 128, 0, stream>>>(scratch, sum, kCount);
    CHECK(cudaFreeAsync(scratch, stream));
    for (int i = 0; i < kCount; ++i) want[i] = want[i] * 3 + (i * 2654435761u + round);
  }
  CHECK(cudaGetLastError());
  CHECK(cudaStreamSynchronize(stream));
  check::Compare("rounds", check::Download(sum, kCount), want);

  // Memory is allocated in one stream, and used and freed in another.
  unsigned* handed = nullptr;
  CHECK(cudaMallocAsync(&handed, kBytes, stream));
  Fill<<<kBlocks, 128, 0, stream>>>(handed, 99, kCount);
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaStreamWaitEvent(other, event, 0));
  Accumulate<<<kBlocks, 128, 0, other>>>(handed, sum, kCount);
  CHECK(cudaFreeAsync(handed, other));
  CHECK(cudaStreamSynchronize(other));
  for (int i = 0; i < kCount; ++i) want[i] = want[i] * 3 + (i * 2654435761u + 99);
  check::Compare("handed over", check::Download(sum, kCount), want);

  // cudaFree may free memory of cudaMallocAsync, and cudaFreeAsync memory of cudaMalloc.
  unsigned *mixed = nullptr, *plain = nullptr;
  CHECK(cudaMallocAsync(&mixed, kBytes, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(mixed));
  CHECK(cudaMalloc(&plain, kBytes));
  cudaError_t freed = cudaFreeAsync(plain, stream);
  std::printf("cudaFreeAsync of cudaMalloc's memory: %s\n", cudaGetErrorName(freed));
  CHECK(cudaStreamSynchronize(stream));
  if (freed != cudaSuccess) CHECK(cudaFree(plain));
  cudaGetLastError();

  // The default pool and its attributes.
  cudaMemPool_t pool = nullptr, current = nullptr;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cudaDeviceGetMemPool(&current, 0));
  REQUIRE(pool == current);
  std::uint64_t threshold = 1 << 20, read = 0;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &read));
  REQUIRE(read == threshold);
  int reuse = 0, reuse_read = 1;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &reuse));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &reuse_read));
  REQUIRE(reuse_read == 0);

  // A pool that the program makes. Its used memory is counted, and is zero at the end.
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 0;
  cudaMemPool_t own = nullptr;
  CHECK(cudaMemPoolCreate(&own, &properties));
  REQUIRE(own != pool);
  unsigned* pieces[3] = {};
  for (unsigned*& piece : pieces) CHECK(cudaMallocFromPoolAsync(&piece, kBytes, own, stream));
  std::uint64_t used = 0, reserved = 0, highest = 0;
  CHECK(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK(cudaMemPoolGetAttribute(own, cudaMemPoolAttrReservedMemCurrent, &reserved));
  CHECK(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemHigh, &highest));
  REQUIRE(used >= 3 * kBytes && reserved >= used && highest >= used);
  for (unsigned n = 0; n < 3; ++n) Fill<<<kBlocks, 128, 0, stream>>>(pieces[n], n * 1000, kCount);
  for (unsigned n = 0; n < 3; ++n) {
    Accumulate<<<kBlocks, 128, 0, stream>>>(pieces[n], sum, kCount);
    for (int i = 0; i < kCount; ++i) want[i] = want[i] * 3 + (i * 2654435761u + n * 1000);
    CHECK(cudaFreeAsync(pieces[n], stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  check::Compare("own pool", check::Download(sum, kCount), want);
  CHECK(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &used));
  REQUIRE(used == 0);
  CHECK(cudaMemPoolTrimTo(own, 0));
  CHECK(cudaMemPoolDestroy(own));

  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(other));
  CHECK(cudaFree(sum));
  return check::Ok();
}
