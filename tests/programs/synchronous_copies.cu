// Copies of ordinary host memory with calls that return when the copy is complete. Work of streams
// and threads that never wait for the copy's stream finds the bytes. A kernel that runs on the
// copy's stream meanwhile holds nobody up.
#include <thread>

#include "check.h"

constexpr int kRounds = 60;
constexpr int kMost = 1 << 17;  // words; the copy needs much longer than a launch

__global__ void CountWrong(const unsigned* data, unsigned first, int count, unsigned* wrong) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    if (data[i] != first + i) atomicAdd(wrong, 1);
  }
}

__global__ void WaitForGo(volatile unsigned* go) {
  while (*go == 0) {
  }
}

std::vector<unsigned> Numbers(unsigned first, int count) {
  std::vector<unsigned> numbers(count);
  for (int i = 0; i < count; ++i) numbers[i] = first + i;
  return numbers;
}

void RequireNone(const char* part, const unsigned* wrong) {
  const unsigned count = check::Download(wrong, 1)[0];
  std::printf("%s: %u wrong\n", part, count);
  if (count != 0) std::exit(1);
}

int main() {
  unsigned* data = check::Zeroed<unsigned>(kMost);
  unsigned* wrong = check::Zeroed<unsigned>(1);
  cudaStream_t free_stream;
  CHECK(cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking));

  // Linear copies of sizes that travel in different ways, read from a stream that waits for no
  // other. The last words are the last to arrive, and the first to be read.
  for (int round = 0; round < kRounds; ++round) {
    const int count = round % 3 == 0 ? 16 : round % 3 == 1 ? 4096 : kMost;
    const unsigned first = 1 + round * 1000003u;
    const std::vector<unsigned> numbers = Numbers(first, count);
    CHECK(cudaMemcpy(data, numbers.data(), count * sizeof(unsigned), cudaMemcpyHostToDevice));
    const int tail = count < 64 ? count : 64;
    CountWrong<<<1, 64, 0, free_stream>>>(data + count - tail, first + count - tail, tail, wrong);
    CountWrong<<<8, 128, 0, free_stream>>>(data, first, count, wrong);
    CHECK(cudaStreamSynchronize(free_stream));
  }
  RequireNone("linear", wrong);

  // Rows.
  const int rows = 64, width = 512;
  for (int round = 0; round < kRounds; ++round) {
    const unsigned first = 7 + round * 1000003u;
    const std::vector<unsigned> numbers = Numbers(first, rows * width);
    CHECK(cudaMemcpy2D(data, width * sizeof(unsigned), numbers.data(), width * sizeof(unsigned),
                       width * sizeof(unsigned), rows, cudaMemcpyHostToDevice));
    CountWrong<<<8, 128, 0, free_stream>>>(data, first, rows * width, wrong);
    CHECK(cudaStreamSynchronize(free_stream));
  }
  RequireNone("rows", wrong);

  // A stream that does not exist yet, and copies of another thread.
  for (int round = 0; round < kRounds / 4; ++round) {
    const unsigned first = 11 + round * 1000003u;
    const std::vector<unsigned> numbers = Numbers(first, kMost);
    CHECK(cudaMemcpy(data, numbers.data(), kMost * sizeof(unsigned), cudaMemcpyHostToDevice));
    cudaStream_t late;
    CHECK(cudaStreamCreateWithFlags(&late, cudaStreamNonBlocking));
    CountWrong<<<8, 128, 0, late>>>(data, first, kMost, wrong);
    CHECK(cudaStreamSynchronize(late));
    CHECK(cudaStreamDestroy(late));
  }
  for (int round = 0; round < kRounds / 4; ++round) {
    const unsigned first = 13 + round * 1000003u;
    const std::vector<unsigned> numbers = Numbers(first, kMost);
    std::thread([&] {
      CHECK(cudaMemcpy(data, numbers.data(), kMost * sizeof(unsigned), cudaMemcpyHostToDevice));
    }).join();
    CountWrong<<<8, 128, 0, free_stream>>>(data, first, kMost, wrong);
    CHECK(cudaStreamSynchronize(free_stream));
  }
  RequireNone("late", wrong);

  // A kernel behind the copy on its stream waits for another stream. That stream waits for the copy
  // alone.
  unsigned* go = check::Zeroed<unsigned>(1);
  const std::vector<unsigned> numbers = Numbers(17, kMost);
  const unsigned one = 1;
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(data, numbers.data(), kMost * sizeof(unsigned), cudaMemcpyHostToDevice));
  WaitForGo<<<1, 1>>>(go);
  cudaStream_t opener;
  CHECK(cudaStreamCreateWithFlags(&opener, cudaStreamNonBlocking));
  CountWrong<<<8, 128, 0, opener>>>(data, 17, kMost, wrong);
  CHECK(cudaMemcpyAsync(go, &one, sizeof(one), cudaMemcpyHostToDevice, opener));
  CHECK(cudaDeviceSynchronize());
  RequireNone("behind", wrong);

  CHECK(cudaStreamDestroy(opener));
  CHECK(cudaStreamDestroy(free_stream));
  CHECK(cudaFree(go));
  CHECK(cudaFree(wrong));
  CHECK(cudaFree(data));
  return check::Ok();
}
