// A program of two modules, from two sources that are compiled separately. Each has a kernel, a
// device variable and a constant of the same names. None may be mistaken for the other module's.
#include "two_modules.h"

static __device__ int state = 100;
static __constant__ int step = 1;

static __global__ void Advance(int* out) {
  state += step;
  *out = state;
}

void RunFirst(int* out) {
  Advance<<<1, 1>>>(out);
  CHECK(cudaGetLastError());
}

void SetFirstStep(int value) { CHECK(cudaMemcpyToSymbol(step, &value, sizeof value)); }

int main() {
  int* out = check::Zeroed<int>(8);
  RunFirst(out + 0);
  RunSecond(out + 1);
  RunFirst(out + 2);
  SetSecondStep(-50);
  RunFirst(out + 3);
  RunSecond(out + 4);
  SetFirstStep(7);
  RunSecond(out + 5);
  RunFirst(out + 6);
  int own = 0, other = 0;
  CHECK(cudaMemcpyFromSymbol(&own, state, sizeof own));
  other = ReadSecondState();
  std::vector<int> got = check::Download(out, 8);
  got[7] = own * 10000 + other;
  check::Compare("states", got, {101, 2010, 102, 103, 1960, 1910, 110, 110 * 10000 + 1910});
  CHECK(cudaFree(out));
  return check::Ok();
}
