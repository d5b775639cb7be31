// A pattern that programs leave in memory, and look for.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

constexpr uint32_t kPattern = 0xDE7A5EED;

// Ends the program with a line about the call if it failed.
inline void Check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorName(result));
  std::exit(1);
}
inline void Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: %d\n", call, static_cast<int>(result));
  std::exit(1);
}

static __global__ void Fill(uint32_t* words, size_t count, uint32_t value) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    words[i] = value;
}

static __global__ void Count(const uint32_t* words, size_t count, unsigned long long* found) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    mine += words[i] == kPattern;
  if (mine != 0) atomicAdd(found, mine);
}

// Returns how many words of the memory have the pattern. `error` is that of the kernel.
inline unsigned long long CountPattern(const uint32_t* words, size_t count, cudaError_t* error) {
  unsigned long long *counter = nullptr, found = 0;
  Check(cudaMalloc(&counter, sizeof(*counter)), "cudaMalloc");
  Check(cudaMemset(counter, 0, sizeof(*counter)), "cudaMemset");
  Count<<<64, 256>>>(words, count, counter);
  *error = cudaMemcpy(&found, counter, sizeof(found), cudaMemcpyDeviceToHost);
  if (*error == cudaSuccess) Check(cudaFree(counter), "cudaFree");
  return found;
}
