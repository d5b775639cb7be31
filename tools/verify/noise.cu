// A noisy neighbour. It repeats one kind of work until it is killed, and checks that its own
// results never change.
//
//   noise arithmetic|bandwidth|allocation|modules
//
// Prints "ready" after the first round. Exits with 3 when a result differs, and with 1 when a CUDA
// call fails.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CHECK(call)                                                                       \
  do {                                                                                    \
    const cudaError_t result = (call);                                                    \
    if (result != cudaSuccess) {                                                          \
      std::fprintf(stderr, "noise: line %d: %s\n", __LINE__, cudaGetErrorString(result)); \
      std::exit(1);                                                                       \
    }                                                                                     \
  } while (false)

namespace {

constexpr int kThreads = 128;

__global__ void Arithmetic(unsigned* values, int rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned x = i;
  for (int round = 0; round < rounds; ++round) x = x * 1664525u + 1013904223u;
  values[i] = x;
}

__global__ void Move(unsigned* to, const unsigned* from, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    to[i] = from[i] + 1;
}

// Compares the digest of a round's result with the first round's.
void Compare(const unsigned* device, size_t count) {
  std::vector<unsigned> values(count);
  CHECK(cudaMemcpy(values.data(), device, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
  unsigned long long digest = 14695981039346656037ull;
  for (const unsigned value : values) digest = (digest ^ value) * 1099511628211ull;
  static unsigned long long expected = digest;
  if (digest != expected) {
    std::fprintf(stderr, "noise: a result differs\n");
    std::exit(3);
  }
}

// The longest that a launch should take. It keeps launches short on software GPUs, too.
constexpr double kLaunchSeconds = 0.002;

// The largest size of `least` times a power of two, up to `most`, whose launch stays within
// kLaunchSeconds.
template <typename Launch>
size_t SizeFor(size_t min, size_t max, Launch launch) {
  size_t size = min;
  for (;;) {
    const auto begin = std::chrono::steady_clock::now();
    launch(size);
    CHECK(cudaDeviceSynchronize());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (size * 2 > max || took.count() > kLaunchSeconds / 2) return size;
    size *= 2;
  }
}

void Ready() {
  std::puts("ready");
  std::fflush(stdout);
}

void RunArithmetic() {
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  const int blocks = 4 * device.multiProcessorCount;
  unsigned* values;
  CHECK(cudaMalloc(&values, blocks * kThreads * sizeof(unsigned)));
  const auto launch = [&](size_t rounds) {
    Arithmetic<<<blocks, kThreads>>>(values, static_cast<int>(rounds));
    CHECK(cudaGetLastError());
  };
  const size_t rounds = SizeFor(8, 1 << 20, launch);
  for (bool first = true;; first = false) {
    for (int i = 0; i < 8; ++i) launch(rounds);
    Compare(values, blocks * kThreads);
    if (first) Ready();
  }
}

void RunBandwidth() {
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  constexpr size_t kMax = size_t{64} << 18;  // 64 MiB of 4-byte words
  unsigned *from, *to;
  CHECK(cudaMalloc(&from, kMax * sizeof(unsigned)));
  CHECK(cudaMalloc(&to, kMax * sizeof(unsigned)));
  CHECK(cudaMemset(from, 7, kMax * sizeof(unsigned)));
  const auto launch = [&](size_t count) {
    Move<<<4 * device.multiProcessorCount, kThreads>>>(to, from, count);
    CHECK(cudaGetLastError());
  };
  const size_t count = SizeFor(1 << 12, kMax, launch);
  for (bool first = true;; first = false) {
    for (int i = 0; i < 8; ++i) launch(count);
    CHECK(cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice));
    launch(count);
    Compare(to, 4096);
    if (first) Ready();
  }
}

void RunAllocation() {
  unsigned state = 1;
  std::vector<unsigned*> held(16, nullptr);
  for (bool first = true;; first = false) {
    for (unsigned*& memory : held) {
      if (memory != nullptr) CHECK(cudaFree(memory));
      state = state * 1664525u + 1013904223u;
      const size_t words = 256 + (state >> 12);  // up to 4 MiB
      CHECK(cudaMalloc(&memory, words * sizeof(unsigned)));
      CHECK(cudaMemset(memory, 0x5A, words * sizeof(unsigned)));
    }
    unsigned* pinned;
    CHECK(cudaMallocHost(&pinned, 1 << 16));
    CHECK(cudaMemcpyAsync(pinned, held[0], 1024, cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeHost(pinned));
    Compare(held[0], 256);
    if (first) Ready();
  }
}

void RunModules() {
  unsigned* value;
  CHECK(cudaMalloc(&value, sizeof(unsigned)));
  bool first = true;
  for (unsigned number = 1;; ++number) {
    // Code that no cache has.
    const std::string text =
        ".version 7.5\n.target sm_75\n.address_size 64\n"
        ".visible .entry Store(.param .u64 to)\n{\n"
        "  .reg .u64 %rd<3>;\n  .reg .u32 %r<3>;\n"
        "  ld.param.u64 %rd1, [to];\n  cvta.to.global.u64 %rd2, %rd1;\n"
        "  mov.u32 %r1, " +
        std::to_string(number) +
        ";\n"
        "  sub.u32 %r2, %r1, " +
        std::to_string(number - 1) +
        ";\n"
        "  st.global.u32 [%rd2], %r2;\n  ret;\n}\n";
    cudaLibrary_t library;
    CHECK(cudaLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    cudaKernel_t kernel;
    CHECK(cudaLibraryGetKernel(&kernel, library, "Store"));
    void* arguments[] = {&value};
    CHECK(cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, nullptr));
    Compare(value, 1);
    CHECK(cudaLibraryUnload(library));
    if (first) Ready();
    first = false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc == 2 ? argv[1] : "";
  if (kind == "arithmetic") RunArithmetic();
  if (kind == "bandwidth") RunBandwidth();
  if (kind == "allocation") RunAllocation();
  if (kind == "modules") RunModules();
  const bool help = kind == "--help" || kind == "-h";
  std::fputs(
      "usage: detshare-noise arithmetic|bandwidth|allocation|modules\n"
      "Keeps a GPU busy, and checks its own results, until it is ended: a neighbour for "
      "detsharectl "
      "verify.\n",
      help ? stdout : stderr);
  return help ? 0 : 2;
}
