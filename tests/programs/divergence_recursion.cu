// Control flow: loops of different lengths in one warp, nested breaks and early returns, a switch
// with fall-through, barriers after divergence, and recursion.
#include "check.h"

__host__ __device__ unsigned Collatz(unsigned n) {
  unsigned steps = 0;
  while (n != 1) {
    n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    ++steps;
  }
  return steps;
}

__host__ __device__ int Search(int n) {
  // Breaks, continues and a return from the inner loop.
  int found = 0;
  for (int a = 1; a < 40; ++a) {
    if (a % 7 == n % 7) continue;
    for (int b = a; b < 40; ++b) {
      if (a * b == n) return 1000 + a;
      if (a * b > n) break;
      found += a ^ b;
    }
    if (a * a > n) break;
  }
  return found;
}

__host__ __device__ int Choose(int n) {
  int result = 0;
  switch (n % 9) {
    case 0:
      result = 5;
      break;
    case 1:
      result += n;
      // Falls through.
    case 2:
      result += 100;
      break;
    case 4:
    case 5:
      for (int i = 0; i < n % 6; ++i) result += i;
      break;
    case 7:
      return -n;
    default:
      result = n * n;
  }
  return result + 1;
}

// Calls itself twice, so it cannot become a loop. At most seven calls deep.
__host__ __device__ __noinline__ int Fibonacci(int n) {
  return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2);
}

__host__ __device__ __noinline__ int Odd(int n);
__host__ __device__ __noinline__ int Even(int n) { return n == 0 ? 1 : 3 * Odd(n - 1) - 1; }
__host__ __device__ __noinline__ int Odd(int n) { return n == 0 ? 0 : Even(n - 1) + 2; }

__global__ void Flow(int* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  out[i] = static_cast<int>(Collatz(i + 1));
  out[count + i] = Search(i);
  out[2 * count + i] = Choose(i);
  out[3 * count + i] = Fibonacci(i % 8);
  out[4 * count + i] = Even(i % 9);
}

// Every thread loops a different number of times before the barrier.
__global__ void Meet(int* out) {
  __shared__ int turns[128];
  int t = threadIdx.x, sum = 0;
  for (int i = 0; i < (t * 37) % 50; ++i) sum += i % (t % 5 + 1);
  turns[t] = sum;
  __syncthreads();
  if (t % 2 == 0) {
    out[t] = turns[t] + turns[t + 1];
  } else if (t % 4 == 1) {
    out[t] = turns[127 - t];
  } else {
    out[t] = -1;
  }
}

int main() {
  constexpr int kCount = 2000;
  std::vector<int> want(5 * kCount);
  for (int i = 0; i < kCount; ++i) {
    want[i] = static_cast<int>(Collatz(i + 1));
    want[kCount + i] = Search(i);
    want[2 * kCount + i] = Choose(i);
    want[3 * kCount + i] = Fibonacci(i % 8);
    want[4 * kCount + i] = Even(i % 9);
  }
  int* out = check::Zeroed<int>(want.size());
  Flow<<<(kCount + 95) / 96, 96>>>(out, kCount);
  CHECK(cudaGetLastError());
  check::Compare("flow", check::Download(out, want.size()), want);

  std::vector<int> turns(128, 0), met(128);
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < (t * 37) % 50; ++i) turns[t] += i % (t % 5 + 1);
  }
  for (int t = 0; t < 128; ++t) {
    met[t] = t % 2 == 0 ? turns[t] + turns[t + 1] : t % 4 == 1 ? turns[127 - t] : -1;
  }
  Meet<<<1, 128>>>(out);
  CHECK(cudaGetLastError());
  check::Compare("after the barrier", check::Download(out, 128), met);
  CHECK(cudaFree(out));
  return check::Ok();
}
