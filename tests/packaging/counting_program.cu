// Counts on the GPU. Replies to each line of its input with the next number, and is idle in
// between.
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                        \
  do {                                                     \
    const cudaError_t result = (call);                     \
    if (result != cudaSuccess) {                           \
      std::printf("error %d\n", static_cast<int>(result)); \
      std::exit(1);                                        \
    }                                                      \
  } while (false)

__global__ void Count(int* value) { ++*value; }

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  int *value, seen = 0;
  CHECK(cudaMalloc(&value, sizeof(int)));
  CHECK(cudaMemset(value, 0, sizeof(int)));
  for (char line[64]; std::fgets(line, sizeof(line), stdin) != nullptr;) {
    Count<<<1, 1>>>(value);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&seen, value, sizeof(int), cudaMemcpyDeviceToHost));
    std::printf("%d\n", seen);
  }
  return 0;
}
