// Device code that separate_compilation_library.cu defines for the program separate_compilation.
#pragma once

using Transformer = int (*)(int);

extern __device__ int shared_table[4];
extern __device__ Transformer transformers[3];

__device__ int Polynomial(int x);
__device__ void CountCall(int* counter);
