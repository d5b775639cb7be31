// The device functions and variables that are linked into the program separate_compilation.
#include "separate_compilation.h"

__device__ int shared_table[4] = {5, -6, 7, -8};

__device__ int Increment(int x) { return x + 1; }
__device__ int Double(int x) { return x * 2; }
__device__ int Invert(int x) { return ~x; }

__device__ Transformer transformers[3] = {Increment, Double, Invert};

__device__ int Polynomial(int x) { return x * x * 3 - x * 2 + 1; }

__device__ void CountCall(int* counter) { atomicAdd(counter, 1); }
