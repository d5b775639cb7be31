#include "server/backends/soft/ptx/aligned_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

namespace detshare::soft::ptx {
namespace {

TEST_CASE("Memory for registers and for stacks is zeroed and aligned, whatever was there before") {
  const size_t bytes = GENERATE(size_t{0}, size_t{1}, size_t{777}, size_t{32 << 10},
                                size_t{(32 << 10) + 1}, size_t{3 << 20});
  const size_t usable = std::max<size_t>(bytes, 1);
  const auto is_zero = [](uint8_t byte) { return byte == 0; };
  for (int round = 0; round < 3; ++round) {
    const AlignedBytes dense = AllocateAligned(bytes);
    const SparseBytes sparse = AllocateSparse(bytes);
    for (uint8_t* const p : {dense.get(), sparse.get()}) {
      REQUIRE(p != nullptr);
      CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
      CHECK(std::all_of(p, p + usable, is_zero));
      std::fill_n(p, usable, uint8_t{0xa5});
    }
  }
}

TEST_CASE("Stacks that nobody uses take no memory") {
  constexpr size_t kBytes = 64 << 20, kPage = 4096;
  const SparseBytes stacks = AllocateSparse(kBytes);
  REQUIRE(stacks != nullptr);
  stacks[kBytes / 2] = 1;
  std::vector<unsigned char> resident(kBytes / kPage);
  REQUIRE(mincore(stacks.get(), kBytes, resident.data()) == 0);
  // A huge page at most.
  CHECK(std::count_if(resident.begin(), resident.end(), [](unsigned char r) { return r & 1; }) <=
        512);
}

TEST_CASE("More memory than there is gives null") {
  CHECK(AllocateSparse(size_t{1} << 60) == nullptr);
}

}  // namespace
}  // namespace detshare::soft::ptx
