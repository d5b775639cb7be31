// Memory that graphs allocate: captured allocations and frees, addresses that do not change, memory
// that outlives the launch, and the rules for launching again.
#include "check_driver.h"

namespace {

constexpr int kCount = 2048;

__global__ void Iota(int* x, int first) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) x[i] = first + i;
}
__global__ void Double(int* to, const int* from) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) to[i] = 2 * from[i];
}

std::uint64_t Reserved() {
  cuuint64_t reserved = 0;
  CHECK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &reserved));
  return reserved;
}

// The graph allocates, uses and frees the memory.
void Temporary(cudaStream_t stream) {
  int* out = check::Zeroed<int>(kCount);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  int *a = nullptr, *b = nullptr;
  CHECK(cudaMallocAsync(&a, kCount * sizeof(int), stream));
  CHECK(cudaMallocAsync(&b, kCount * sizeof(int), stream));
  REQUIRE(a != nullptr && b != nullptr && a != b);
  Iota<<<kCount / 256, 256, 0, stream>>>(a, 5);
  Double<<<kCount / 256, 256, 0, stream>>>(b, a);
  Double<<<kCount / 256, 256, 0, stream>>>(out, b);
  CHECK(cudaFreeAsync(a, stream));
  CHECK(cudaFreeAsync(b, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec, second;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  // The graph has one executable graph at a time, and it cannot be cloned.
  REQUIRE(cudaGraphInstantiate(&second, graph, 0) != cudaSuccess);
  cudaGraph_t clone;
  REQUIRE(cudaGraphClone(&clone, graph) != cudaSuccess);
  cudaGetLastError();
  for (int round = 0; round < 3; ++round) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  // The addresses have memory at the latest when the graph has run.
  REQUIRE(Reserved() >= 2 * kCount * sizeof(int));
  const std::vector<int> got = check::Download(out, kCount);
  for (int i = 0; i < kCount; ++i) REQUIRE(got[i] == 4 * (5 + i));
  std::printf("temporary: 3 launches\n");
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));  // the first one is destroyed
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(out));
}

// A graph allocates the memory, and the stream uses and frees it afterwards.
void Lasting(cudaStream_t stream, unsigned long long flags) {
  CUgraph graph;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.poolProps.location.id = 0;
  params.bytesize = kCount * sizeof(int);
  CUgraphNode alloc;
  CHECK_CU(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  REQUIRE(params.dptr != 0);
  CUDA_MEM_ALLOC_NODE_PARAMS is{};
  CHECK_CU(cuGraphMemAllocNodeGetParams(alloc, &is));
  REQUIRE(is.dptr == params.dptr && is.bytesize == params.bytesize);
  REQUIRE(cuGraphDestroyNode(alloc) != CUDA_SUCCESS);
  CUgraphNode none;
  EXPECT_CU(cuGraphAddMemFreeNode(&none, graph, &alloc, 1, params.dptr + 256),
            CUDA_ERROR_INVALID_VALUE);
  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, graph, flags));
  int* memory = reinterpret_cast<int*>(params.dptr);
  CHECK_CU(cuGraphLaunch(exec, stream));
  Iota<<<kCount / 256, 256, 0, stream>>>(memory, 9);
  CHECK(cudaStreamSynchronize(stream));
  REQUIRE(check::Download(memory, kCount)[100] == 109);
  if (flags == 0) {
    EXPECT_CU(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);  // not freed yet
    CHECK(cudaFreeAsync(memory, stream));
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK(cudaFree(memory));
    std::printf("lasting: freed by stream and call\n");
  } else {
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK(cudaFreeAsync(memory, stream));
    std::printf("lasting: freed by the next launch\n");
  }
  // Another graph may free it.
  CUgraph freeing;
  CHECK_CU(cuGraphCreate(&freeing, 0));
  CUgraphNode free_node;
  CHECK_CU(cuGraphAddMemFreeNode(&free_node, freeing, nullptr, 0, params.dptr));
  CUdeviceptr freed;
  CHECK_CU(cuGraphMemFreeNodeGetParams(free_node, &freed));
  REQUIRE(freed == params.dptr);
  CUgraphExec freeing_exec;
  CHECK_CU(cuGraphInstantiate(&freeing_exec, freeing, 0));
  for (int round = 0; round < 3; ++round) {
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuGraphLaunch(freeing_exec, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  std::printf("lasting: freed by another graph\n");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphExecDestroy(freeing_exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuGraphDestroy(freeing));
}

// Allocations of a chain share memory, and allocations that can be in use together do not (seen with
// driver 580 on an H100).
void Shared(cudaStream_t stream) {
  constexpr std::size_t kBytes = 4 << 20;
  void *first, *second, *third, *fourth;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(cudaMallocAsync(&first, kBytes, stream));
  Iota<<<kCount / 256, 256, 0, stream>>>(static_cast<int*>(first), 1);
  CHECK(cudaFreeAsync(first, stream));
  CHECK(cudaMallocAsync(&second, kBytes, stream));
  CHECK(cudaMallocAsync(&third, kBytes, stream));
  CHECK(cudaFreeAsync(second, stream));
  CHECK(cudaFreeAsync(third, stream));
  CHECK(cudaMallocAsync(&fourth, kBytes / 2, stream));
  Iota<<<kCount / 256, 256, 0, stream>>>(static_cast<int*>(fourth), 2);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  REQUIRE(second == first && third != first);
  REQUIRE(fourth == first || fourth == third);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  // The memory is there from the launch on until it is freed.
  const CUdeviceptr last = reinterpret_cast<CUdeviceptr>(fourth);
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  EXPECT_CU(cuMemGetAddressRange(&start, &bytes, last), CUDA_ERROR_NOT_FOUND);
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK_CU(cuMemGetAddressRange(&start, &bytes, last + 5));
  REQUIRE(start == last && bytes == kBytes / 2);
  EXPECT_CU(cuMemGetAddressRange(&start, &bytes, last + bytes), CUDA_ERROR_NOT_FOUND);
  REQUIRE(check::Download(static_cast<int*>(fourth), kCount)[100] == 102);
  EXPECT_CU(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);  // not freed yet
  CHECK(cudaFree(fourth));
  EXPECT_CU(cuMemGetAddressRange(&start, &bytes, last), CUDA_ERROR_NOT_FOUND);
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaFreeAsync(fourth, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  std::printf("shared: memory of a chain\n");
}

}  // namespace

int main() {
  check::UsePrimaryContext();
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Temporary(stream);
  Lasting(stream, 0);
  Lasting(stream, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  Shared(stream);
  CHECK(cudaDeviceGraphMemTrim(0));
  return check::Ok();
}
