// A program that keeps a part of the card's memory and checks from time to time whether every word
// is right.
//
//   memory_turns PERMILLE SEED     takes this part of the card's whole memory
//
// For each line on its standard input it does one round. It counts the words that differ from those
// of the round before, writes new words, and prints the count and the time in milliseconds. A line
// `N` with a number makes it do N rounds without waiting. At the end of the input it prints `ok` if
// no word was ever wrong.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void Check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorName(result));
  std::exit(1);
}

__host__ __device__ uint64_t Word(uint64_t index, uint64_t seed) {
  uint64_t value = (index + 1) * 0x9E3779B97F4A7C15ull + seed;
  value = (value ^ (value >> 31)) * 0xBF58476D1CE4E5B9ull;
  return value ^ (value >> 29);
}

// Counts words that are not those of the old seed, and writes those of the new seed.
__global__ void Turn(uint64_t* words, uint64_t count, uint64_t first, uint64_t old_seed,
                     uint64_t new_seed, unsigned long long* wrong) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    if (old_seed != 0 && words[i] != Word(first + i, old_seed)) ++mine;
    words[i] = Word(first + i, new_seed);
  }
  if (mine != 0) atomicAdd(wrong, mine);
}

struct Piece {
  uint64_t* words = nullptr;
  uint64_t count = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::printf("memory_turns PERMILLE SEED\n");
    return 2;
  }
  const uint64_t permille = std::strtoull(argv[1], nullptr, 10);
  uint64_t seed = std::strtoull(argv[2], nullptr, 10) << 32 | 1;
  size_t free = 0, total = 0;
  Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  // Pieces of different sizes. The smallest ones share a granule.
  std::vector<Piece> pieces;
  const uint64_t all = total / 1000 * permille;
  for (uint64_t bytes : {uint64_t{4096}, uint64_t{100000}, uint64_t{3} << 20}) {
    Piece& piece = pieces.emplace_back();
    piece.count = bytes / 8;
    Check(cudaMalloc(&piece.words, bytes), "cudaMalloc");
  }
  const uint64_t largest = total / 16;
  for (uint64_t left = all > (uint64_t{4} << 20) ? all - (uint64_t{4} << 20) : 0; left >= 8;) {
    Piece& piece = pieces.emplace_back();
    piece.count = (left < largest ? left : largest) / 8;
    Check(cudaMalloc(&piece.words, piece.count * 8), "cudaMalloc");
    left -= piece.count * 8;
  }
  unsigned long long* wrong = nullptr;
  Check(cudaMalloc(&wrong, sizeof(*wrong)), "cudaMalloc");
  Check(cudaMemset(wrong, 0, sizeof(*wrong)), "cudaMemset");
  int sms = 0;
  Check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  std::printf("holds %llu MiB\n", static_cast<unsigned long long>(all >> 20));
  std::fflush(stdout);

  uint64_t written = 0;
  unsigned long long ever = 0;
  int round = 0;
  char line[64];
  while (std::fgets(line, sizeof(line), stdin) != nullptr) {
    const long asked = std::strtol(line, nullptr, 10);
    for (long left = asked > 0 ? asked : 1; left > 0; --left) {
      const auto begin = std::chrono::steady_clock::now();
      uint64_t first = 0;
      for (const Piece& piece : pieces) {
        Turn<<<sms, 256>>>(piece.words, piece.count, first, written, seed, wrong);
        first += piece.count;
      }
      Check(cudaGetLastError(), "Turn");
      Check(cudaMemcpy(&ever, wrong, sizeof(ever), cudaMemcpyDeviceToHost), "cudaMemcpy");
      written = seed;
      seed += 2;
      const double ms =
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
              .count();
      std::printf("round %d: %llu wrong words, %.1f ms\n", ++round, ever, ms);
      std::fflush(stdout);
    }
  }
  std::printf("%s\n", ever == 0 ? "ok" : "WRONG");
  return ever == 0 ? 0 : 1;
}
