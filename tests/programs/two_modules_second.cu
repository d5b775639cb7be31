// The second module of the program two_modules. It uses the same names with other meanings.
#include "two_modules.h"

static __device__ int state = 2000;
static __constant__ int step = 10;

static __global__ void Advance(int* out) {
  state += step;
  *out = state;
}

void RunSecond(int* out) {
  Advance<<<1, 1>>>(out);
  CHECK(cudaGetLastError());
}

void SetSecondStep(int value) { CHECK(cudaMemcpyToSymbol(step, &value, sizeof value)); }

int ReadSecondState() {
  int value = 0;
  CHECK(cudaMemcpyFromSymbol(&value, state, sizeof value));
  return value;
}
