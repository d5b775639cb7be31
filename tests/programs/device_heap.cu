// Memory that kernels allocate. It lasts from one kernel to the next, and another thread may free
// it.
#include "check.h"

constexpr int kThreads = 256;
constexpr int kNumbers = 100;

__global__ void Allocate(int** pointers, int* failed) {
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  int* const numbers = static_cast<int*>(malloc(kNumbers * sizeof(int)));
  pointers[thread] = numbers;
  if (numbers == nullptr) {
    atomicAdd(failed, 1);
    return;
  }
  for (int i = 0; i < kNumbers; ++i) numbers[i] = thread * kNumbers + i;
}

__global__ void SumAndFree(int** pointers, unsigned long long* sum) {
  const int thread = kThreads - 1 - (blockIdx.x * blockDim.x + threadIdx.x);
  unsigned long long own = 0;
  for (int i = 0; i < kNumbers; ++i) own += pointers[thread][i];
  free(pointers[thread]);
  atomicAdd(sum, own);
}

struct Node {
  __device__ explicit Node(int number) : value(number) {}
  int value;
  Node* next = nullptr;
};

// A list made with new and delete.
__global__ void List(int length, int* sum) {
  Node* head = nullptr;
  for (int i = 0; i < length; ++i) {
    Node* const node = new Node(i);
    node->next = head;
    head = node;
  }
  while (head != nullptr) {
    *sum += head->value;
    Node* const next = head->next;
    delete head;
    head = next;
  }
}

int main() {
  CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
  size_t heap;
  CHECK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
  REQUIRE(heap >= (32u << 20));
  int **pointers, *failed, *list;
  unsigned long long* sum;
  CHECK(cudaMalloc(&pointers, kThreads * sizeof(int*)));
  CHECK(cudaMallocManaged(&failed, sizeof(int)));
  CHECK(cudaMallocManaged(&list, sizeof(int)));
  CHECK(cudaMallocManaged(&sum, sizeof(*sum)));
  *failed = *list = 0;
  *sum = 0;
  for (int round = 0; round < 3; ++round) {
    Allocate<<<4, kThreads / 4>>>(pointers, failed);
    SumAndFree<<<2, kThreads / 2>>>(pointers, sum);
  }
  List<<<1, 1>>>(50, list);
  CHECK(cudaDeviceSynchronize());
  REQUIRE(*failed == 0);
  const unsigned long long n = kThreads * kNumbers;
  REQUIRE(*sum == 3 * (n * (n - 1) / 2));
  REQUIRE(*list == 50 * 49 / 2);
  CHECK(cudaFree(pointers));
  CHECK(cudaFree(failed));
  CHECK(cudaFree(list));
  CHECK(cudaFree(sum));
  std::printf("ok\n");
}
