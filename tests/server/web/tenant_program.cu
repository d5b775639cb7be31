// A tenant for tests of metrics and dashboard: tenant_program answer|train|wait SECONDS. It replies
// to one request after the other with pauses between them, trains without a pause, or holds memory
// and waits. Prints a line when it has begun.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

__global__ void Step(float* data, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = data[i];
  for (int round = 0; round < rounds; ++round) value = value * 0.5f + 1.0f;
  data[i] = value;
}

static double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

static void Sleep(long microseconds) {
  const timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
  nanosleep(&time, nullptr);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool train = std::strcmp(argv[1], "train") == 0, wait = std::strcmp(argv[1], "wait") == 0;
  const double end = Now() + std::atof(argv[2]);
  const size_t bytes = train ? 96 << 20 : wait ? 24 << 20 : 48 << 20;
  float* data = nullptr;
  Check(cudaMalloc(&data, bytes));
  Check(cudaMemset(data, 0, bytes));
  Check(cudaDeviceSynchronize());
  std::puts("begun");
  std::fflush(stdout);
  for (int step = 0; Now() < end; ++step) {
    if (wait) {
      Sleep(50'000);
      continue;
    }
    float result;
    for (int i = 0; i < (train ? 16 : 4); ++i) {
      Step<<<train ? 64 : 16, 128>>>(data, train ? 60 : 20);
      Check(cudaGetLastError());
    }
    Check(cudaMemcpy(&result, data, sizeof(result), cudaMemcpyDeviceToHost));
    if (!train) Sleep(step / 200 % 2 == 0 ? 8'000 : 25'000);
  }
  return 0;
}
