// Streams as objects: flags, priorities, ids and devices, many streams at once, and the work of a
// destroyed stream.
#include <set>

#include "check.h"

__global__ void Add(unsigned* x, unsigned value) { atomicAdd(x, value); }

int main() {
  int least = 1, greatest = 1;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  REQUIRE(least == 0 && greatest <= 0);
  unsigned* sum = check::Zeroed<unsigned>(1);
  CHECK(cudaDeviceSynchronize());

  struct Wish {
    unsigned flags;
    int priority;
  };
  const Wish wishes[] = {{cudaStreamDefault, 0},
                         {cudaStreamNonBlocking, 0},
                         {cudaStreamNonBlocking, greatest},
                         {cudaStreamDefault, greatest - 100},
                         {cudaStreamDefault, 100}};
  std::set<unsigned long long> ids;
  unsigned want = 0;
  for (const Wish& wish : wishes) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithPriority(&stream, wish.flags, wish.priority));
    unsigned flags = 77;
    int priority = 77, device = -1;
    unsigned long long id = 0;
    CHECK(cudaStreamGetFlags(stream, &flags));
    CHECK(cudaStreamGetPriority(stream, &priority));
    CHECK(cudaStreamGetId(stream, &id));
    CHECK(cudaStreamGetDevice(stream, &device));
    REQUIRE(flags == wish.flags);
    // A priority outside the range becomes the nearest one inside.
    int inside = wish.priority > least      ? least
                 : wish.priority < greatest ? greatest
                                            : wish.priority;
    REQUIRE(priority == inside);
    REQUIRE(device == 0);
    REQUIRE(ids.insert(id).second);
    Add<<<1, 32, 0, stream>>>(sum, ++want);
    CHECK(cudaGetLastError());
    // Destroying a stream returns at once, and its work is still done.
    CHECK(cudaStreamDestroy(stream));
  }
  want = 32 * (want * (want + 1) / 2);
  CHECK(cudaDeviceSynchronize());
  check::Compare("after destruction", check::Download(sum, 1), {want});

  std::vector<cudaStream_t> streams(64);
  for (cudaStream_t& stream : streams)
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t s = 0; s < streams.size(); ++s) {
      Add<<<1, 1, 0, streams[s]>>>(sum, static_cast<unsigned>(s + round));
      want += static_cast<unsigned>(s + round);
    }
  }
  for (cudaStream_t stream : streams) {
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamQuery(stream));
    CHECK(cudaStreamDestroy(stream));
  }
  check::Compare("many streams", check::Download(sum, 1), {want});

  unsigned flags = 77;
  CHECK(cudaStreamGetFlags(nullptr, &flags));
  std::printf("flags of the default stream: %u\n", flags);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  CHECK(cudaStreamIsCapturing(nullptr, &status));
  REQUIRE(status == cudaStreamCaptureStatusNone);
  CHECK(cudaFree(sum));
  return check::Ok();
}
