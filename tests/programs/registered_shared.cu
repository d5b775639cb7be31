// Registered memory that two processes share. Kernels of both work on it in place, and each CPU
// sees what the other process's GPU work wrote.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <string>

#include "check.h"

constexpr int kCount = 50000;  // not whole pages
constexpr std::size_t kBytes = kCount * sizeof(int);
constexpr int kFirst = 1000;
// The memory ends within a page of the file, as NCCL's does.
constexpr std::size_t kFileBytes = (kFirst + kCount + 1) * sizeof(int);

__global__ void Step(int* values, int count, int factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = values[i] * factor + i % 7;
}

void StepOnGpu(int* values, int factor) {
  CHECK(cudaHostRegister(values, kBytes, cudaHostRegisterMapped));
  int* device = nullptr;
  CHECK(cudaHostGetDevicePointer(&device, values, 0));
  Step<<<(kCount + 255) / 256, 256>>>(device, kCount, factor);
  CHECK(cudaDeviceSynchronize());
}

int main() {
  // Processes of other PID namespaces share the folder.
  std::random_device random;
  const std::string name =
      "/detshare-program-" + std::to_string(random()) + "-" + std::to_string(random());
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  REQUIRE(file >= 0 && ftruncate(file, kFileBytes) == 0);
  void* shared = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REQUIRE(shared != MAP_FAILED);
  int* values = static_cast<int*>(shared) + kFirst;
  std::vector<int> want(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = want[i] = i;

  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(file);  // the file has its name
    StepOnGpu(values, 3);
    CHECK(cudaHostUnregister(values));
    values[kCount] = 1;  // outside the registered range
    std::_Exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (int i = 0; i < kCount; ++i) want[i] = want[i] * 3 + i % 7;
  check::Compare("by the child's GPU", values, want.data(), kCount);
  REQUIRE(values[kCount] == 1);

  REQUIRE(shm_unlink(name.c_str()) == 0);  // and now only the descriptor
  StepOnGpu(values, 2);
  close(file);
  for (int i = 0; i < kCount; ++i) want[i] = want[i] * 2 + i % 7;
  check::Compare("by this GPU", values, want.data(), kCount);
  int* device = check::Zeroed<int>(kCount);
  values[5] = want[5] = 77;
  CHECK(cudaMemcpy(device, values, kBytes, cudaMemcpyHostToDevice));
  check::Compare("copied", check::Download(device, kCount), want);
  CHECK(cudaHostUnregister(values));
  check::Compare("unregistered", values, want.data(), kCount);
  CHECK(cudaFree(device));
  REQUIRE(munmap(shared, kFileBytes) == 0);
  return check::Ok();
}
