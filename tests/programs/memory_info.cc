// Total and free memory. Allocations must be aligned, distinct and usable to their last byte.
#include <algorithm>

#include "check.h"

int main() {
  std::size_t free_before = 0, free_with = 0, free_after = 0, total = 0, total_again = 0;
  CHECK(cudaFree(nullptr));
  CHECK(cudaMemGetInfo(&free_before, &total));
  REQUIRE(free_before > 0 && free_before <= total);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("all of it is global memory: %s\n",
              properties.totalGlobalMem == total ? "yes" : "no");

  constexpr std::size_t kBytes = 64 << 20;
  void* large = nullptr;
  CHECK(cudaMalloc(&large, kBytes));
  CHECK(cudaMemGetInfo(&free_with, &total_again));
  REQUIRE(total_again == total);
  REQUIRE(free_with <= free_before);
  CHECK(cudaFree(large));
  CHECK(cudaMemGetInfo(&free_after, &total_again));
  REQUIRE(free_after >= free_with);
  std::printf("memory is counted\n");

  // Many allocations of many sizes at once.
  check::Random random(44);
  struct Piece {
    unsigned char* pointer;
    std::size_t size;
    unsigned char value;
  };
  std::vector<Piece> pieces(300);
  for (Piece& piece : pieces) {
    piece.size = 1 + random.Next32() % (1u << random.Next32() % 17);
    piece.value = static_cast<unsigned char>(random.Next32());
    CHECK(cudaMalloc(&piece.pointer, piece.size));
    REQUIRE(reinterpret_cast<std::uintptr_t>(piece.pointer) % 256 == 0);
    CHECK(cudaMemset(piece.pointer, piece.value, piece.size));
  }
  // Every second allocation is freed and made again with another size.
  for (std::size_t i = 0; i < pieces.size(); i += 2) {
    CHECK(cudaFree(pieces[i].pointer));
    pieces[i].size = pieces[i].size * 3 / 2 + 1;
    CHECK(cudaMalloc(&pieces[i].pointer, pieces[i].size));
    CHECK(cudaMemset(pieces[i].pointer, pieces[i].value, pieces[i].size));
  }
  std::vector<Piece> sorted = pieces;
  std::sort(sorted.begin(), sorted.end(),
            [](const Piece& a, const Piece& b) { return a.pointer < b.pointer; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    REQUIRE(sorted[i - 1].pointer + sorted[i - 1].size <= sorted[i].pointer);
  }
  std::vector<unsigned char> got, want;
  for (const Piece& piece : pieces) {
    std::vector<unsigned char> bytes = check::Download(piece.pointer, piece.size);
    got.insert(got.end(), bytes.begin(), bytes.end());
    want.insert(want.end(), piece.size, piece.value);
    CHECK(cudaFree(piece.pointer));
  }
  check::Compare("contents", got, want);
  return check::Ok();
}
