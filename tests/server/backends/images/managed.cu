// Variables of each kind, for tests of their relocation.
__managed__ int counter = 7;
__managed__ int table[1000];
static __managed__ double pair[2] = {1.5, 2.5};
__device__ int ordinary = 3;
__device__ int* pointer = &ordinary;

extern "C" __global__ void Use(int n) {
  counter += n;
  table[threadIdx.x + 3] = counter + ordinary + *pointer;
  pair[1] *= 2;
}
