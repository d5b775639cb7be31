extern __device__ int shared_variable;

__device__ int Twice(int value) { return value * 2 + shared_variable; }
