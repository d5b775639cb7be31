// A program that computes something right and then faults. The benchmark beside it runs it.
//
//     faulty_program KIND
//
// KIND is one of illegal-address, assertion, trap, stack-overflow, endless, none. The program prints
// `ready` when its first kernel gave the right result, and then launches the faulty one, if there is one. It
// prints the error that CUDA reports. The exit code is 0 if CUDA reports one, and with `none`. `endless` needs
// somebody who ends its kernel.
#include <cassert>
#include <cstdio>
#include <cstring>

namespace {

__global__ void Square(int* values) { values[threadIdx.x] = threadIdx.x * threadIdx.x; }

__global__ void IllegalAddress(int* values) {
  // Far outside of every allocation: the upper half of the GPU's 47 bits.
  *reinterpret_cast<volatile int*>(0x7000'0000'0000ull) = values[0];
}

__global__ void Assertion(int* values) { assert(values[1] == 2); }

__global__ void Trap() { __trap(); }

__device__ __noinline__ int Recurse(int depth, const int* values) {
  volatile int local[64];
  local[depth % 64] = values[depth % 32];
  return depth == 0 ? local[0] : Recurse(depth - 1, values) + local[depth % 64];
}
__global__ void StackOverflow(int* values) { values[0] = Recurse(1 << 24, values); }

__global__ void Endless(volatile int* values) {
  while (values[0] == 0) {
  }
}

constexpr int kValues = 32;

bool Ready(int* values) {
  int found[kValues];
  Square<<<1, kValues>>>(values);
  if (cudaMemcpy(found, values, sizeof found, cudaMemcpyDeviceToHost) != cudaSuccess) return false;
  for (int i = 0; i < kValues; ++i) {
    if (found[i] != i * i) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const char* kind = argc == 2 ? argv[1] : "";
  int* values = nullptr;
  if (cudaMalloc(&values, kValues * sizeof(int)) != cudaSuccess || !Ready(values)) {
    std::fprintf(stderr, "faulty_program: the first kernel failed: %s\n",
                 cudaGetErrorName(cudaGetLastError()));
    return 1;
  }
  std::puts("ready");
  std::fflush(stdout);
  if (std::strcmp(kind, "none") == 0) {
    return 0;
  }
  if (std::strcmp(kind, "illegal-address") == 0) {
    IllegalAddress<<<1, 1>>>(values);
  } else if (std::strcmp(kind, "assertion") == 0) {
    Assertion<<<1, 1>>>(values);
  } else if (std::strcmp(kind, "trap") == 0) {
    Trap<<<1, 1>>>();
  } else if (std::strcmp(kind, "stack-overflow") == 0) {
    StackOverflow<<<1, 1>>>(values);
  } else if (std::strcmp(kind, "endless") == 0) {
    Endless<<<1, 1>>>(values);
  } else {
    std::fprintf(stderr, "faulty_program: unknown kind of fault: %s\n", kind);
    return 2;
  }
  const cudaError_t error = cudaDeviceSynchronize();
  std::puts(cudaGetErrorName(error));
  return error == cudaSuccess ? 1 : 0;
}
