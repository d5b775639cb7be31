// fork before CUDA is used. Two children and the parent then use it at the same time, each for
// itself.
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

constexpr int kCount = 5000;

__global__ void Fill(unsigned* x, unsigned seed, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = (seed + i) * 2654435761u;
}

std::uint64_t Work(unsigned seed) {
  unsigned* device = check::Zeroed<unsigned>(kCount);
  Fill<<<(kCount + 127) / 128, 128>>>(device, seed, kCount);
  CHECK(cudaGetLastError());
  std::vector<unsigned> got = check::Download(device, kCount);
  CHECK(cudaFree(device));
  return check::Digest(got.data(), got.size());
}

std::uint64_t Expected(unsigned seed) {
  std::vector<unsigned> want(kCount);
  for (int i = 0; i < kCount; ++i) want[i] = (seed + i) * 2654435761u;
  return check::Digest(want.data(), want.size());
}

int main() {
  constexpr int kChildren = 2;
  pid_t children[kChildren];
  int results[kChildren][2];
  for (int c = 0; c < kChildren; ++c) {
    REQUIRE(pipe(results[c]) == 0);
    std::fflush(stdout);
    children[c] = fork();
    REQUIRE(children[c] >= 0);
    if (children[c] == 0) {
      std::uint64_t digest = Work(1000 + c);
      bool written = write(results[c][1], &digest, sizeof digest) == sizeof digest;
      std::exit(written ? 0 : 1);
    }
  }
  std::uint64_t own = Work(7);
  std::vector<std::uint64_t> got = {own}, want = {Expected(7)};
  for (int c = 0; c < kChildren; ++c) {
    int status = -1;
    REQUIRE(waitpid(children[c], &status, 0) == children[c]);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::uint64_t digest = 0;
    REQUIRE(read(results[c][0], &digest, sizeof digest) == sizeof digest);
    got.push_back(digest);
    want.push_back(Expected(1000 + c));
  }
  check::Compare("parent and children", got, want);
  return check::Ok();
}
