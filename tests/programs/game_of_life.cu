// A stencil that alternates between two buffers: the game of life on a torus, with a halo in shared
// memory.
#include "check.h"

constexpr int kWidth = 128;
constexpr int kHeight = 96;
constexpr int kTile = 16;
constexpr int kGenerations = 1000;

__global__ void Generation(const unsigned char* from, unsigned char* to) {
  __shared__ unsigned char cells[kTile + 2][kTile + 2];
  int left = blockIdx.x * kTile - 1, top = blockIdx.y * kTile - 1;
  for (int k = threadIdx.y * kTile + threadIdx.x; k < (kTile + 2) * (kTile + 2);
       k += kTile * kTile) {
    int x = (left + k % (kTile + 2) + kWidth) % kWidth,
        y = (top + k / (kTile + 2) + kHeight) % kHeight;
    cells[k / (kTile + 2)][k % (kTile + 2)] = from[y * kWidth + x];
  }
  __syncthreads();
  int neighbours = 0;
  for (int dy = 0; dy <= 2; ++dy) {
    for (int dx = 0; dx <= 2; ++dx) {
      if (dx != 1 || dy != 1) neighbours += cells[threadIdx.y + dy][threadIdx.x + dx];
    }
  }
  bool alive = cells[threadIdx.y + 1][threadIdx.x + 1] != 0;
  int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  to[y * kWidth + x] = neighbours == 3 || (alive && neighbours == 2);
}

int main() {
  check::Random random(1970);
  std::vector<unsigned char> cells(kWidth * kHeight);
  for (unsigned char& cell : cells) cell = random.Next32() % 3 == 0;
  unsigned char* current = check::Upload(cells);
  unsigned char* next = check::Zeroed<unsigned char>(cells.size());
  for (int generation = 0; generation < kGenerations; ++generation) {
    Generation<<<dim3(kWidth / kTile, kHeight / kTile), dim3(kTile, kTile)>>>(current, next);
    std::swap(current, next);
  }
  CHECK(cudaGetLastError());
  for (int generation = 0; generation < kGenerations; ++generation) {
    std::vector<unsigned char> after(cells.size());
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        int neighbours = 0;
        for (int dy = -1; dy <= 1; ++dy) {
          for (int dx = -1; dx <= 1; ++dx) {
            if (dx == 0 && dy == 0) continue;
            neighbours += cells[(y + dy + kHeight) % kHeight * kWidth + (x + dx + kWidth) % kWidth];
          }
        }
        after[y * kWidth + x] = neighbours == 3 || (cells[y * kWidth + x] != 0 && neighbours == 2);
      }
    }
    cells.swap(after);
  }
  check::Compare("cells", check::Download(current, cells.size()), cells);
  int alive = 0;
  for (unsigned char cell : cells) alive += cell;
  std::printf("alive: %d\n", alive);
  CHECK(cudaFree(current));
  CHECK(cudaFree(next));
  return check::Ok();
}
