// A program of two files that nvlink would link.
extern __device__ int Twice(int value);
__device__ int shared_variable = 20;

extern "C" __global__ void UseTwice(int* out) { *out = Twice(*out) + shared_variable; }
