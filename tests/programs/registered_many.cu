// Many ranges of registered memory at once, of all sizes, as a program has that registers each of its
// tensors. They come and go in random order. Kernels and copies use them in place.
#include <algorithm>
#include <cstdint>
#include <random>

#include "check.h"

namespace {

constexpr int kRanges = 600;
constexpr std::size_t kPage = 4096;

struct Range {
  uint32_t* words;
  std::size_t count;
  uint32_t first;  // word i is first + i
  bool registered;
};

__global__ void Add(uint32_t* words, std::size_t count, uint32_t addend) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < count) words[i] += addend;
}

void Register(Range& range) {
  CHECK(cudaHostRegister(range.words, range.count * sizeof(uint32_t), cudaHostRegisterMapped));
  range.registered = true;
}

void Unregister(Range& range) {
  CHECK(cudaHostUnregister(range.words));
  range.registered = false;
}

void AddTo(Range& range, uint32_t addend) {
  uint32_t* words;
  CHECK(cudaHostGetDevicePointer(&words, range.words, 0));
  Add<<<static_cast<unsigned>((range.count + 255) / 256), 256>>>(words, range.count, addend);
  CHECK(cudaGetLastError());
  range.first += addend;
}

std::size_t Wrong(const std::vector<Range>& ranges) {
  std::size_t wrong = 0;
  for (const Range& range : ranges)
    for (std::size_t i = 0; i < range.count; ++i)
      wrong += range.words[i] != range.first + static_cast<uint32_t>(i);
  return wrong;
}

}  // namespace

int main() {
  std::mt19937 random(1);
  // Every range is apart from the others by a page at least. A few are larger than a MiB.
  std::vector<std::size_t> bytes(kRanges);
  std::size_t total = 0;
  for (int i = 0; i < kRanges; ++i) {
    bytes[i] = i % 100 == 0 ? (std::size_t{1} << 20) + 4 * (random() % kPage)
                            : 4 * (1 + random() % (3 * kPage));
    total += (bytes[i] / kPage + 3) * kPage;
  }
  std::vector<char> memory(total);
  std::vector<Range> ranges;
  char* next = memory.data();
  for (int i = 0; i < kRanges; ++i) {
    uint32_t* const words = reinterpret_cast<uint32_t*>(next) + random() % 16;
    ranges.push_back({words, bytes[i] / sizeof(uint32_t), static_cast<uint32_t>(random()), false});
    for (std::size_t j = 0; j < ranges.back().count; ++j)
      words[j] = ranges.back().first + static_cast<uint32_t>(j);
    next += (bytes[i] / kPage + 3) * kPage;
  }

  for (Range& range : ranges) Register(range);
  REQUIRE(Wrong(ranges) == 0);
  for (Range& range : ranges) AddTo(range, 1000);
  CHECK(cudaDeviceSynchronize());
  REQUIRE(Wrong(ranges) == 0);

  for (int round = 0; round < 4; ++round) {
    for (Range& range : ranges) {
      if (random() % 2 == 0) continue;
      range.registered ? Unregister(range) : Register(range);
    }
    REQUIRE(Wrong(ranges) == 0);
    for (Range& range : ranges) {
      if (range.registered) AddTo(range, random());
    }
    CHECK(cudaDeviceSynchronize());
    REQUIRE(Wrong(ranges) == 0);
  }

  // Copies between registered ranges.
  Range& from = ranges[100];
  Range& to = ranges[200];
  for (Range* const range : {&from, &to})
    if (!range->registered) Register(*range);
  const std::size_t count = std::min(from.count, to.count);
  to.count = count;
  to.first = from.first;
  CHECK(
      cudaMemcpyAsync(to.words, from.words, count * sizeof(uint32_t), cudaMemcpyDefault, nullptr));
  CHECK(cudaStreamSynchronize(nullptr));
  REQUIRE(Wrong(ranges) == 0);

  for (Range& range : ranges)
    if (range.registered) Unregister(range);
  REQUIRE(Wrong(ranges) == 0);
  EXPECT(cudaHostUnregister(from.words), cudaErrorHostMemoryNotRegistered);
  return check::Ok();
}
