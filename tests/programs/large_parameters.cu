// Kernels with up to 32,764 bytes of parameters, which CUDA 12.1 allows. All bytes must arrive, in
// launches and in graphs.
#include "check.h"

template <int kWords>
struct Block {
  uint32_t words[kWords];
};

template <int kWords>
__global__ void Copy(Block<kWords> block, uint32_t* out, uint32_t add) {
  for (int i = threadIdx.x; i < kWords; i += blockDim.x) out[i] = block.words[i] + add;
}

template <int kWords>
void Try(uint32_t* out) {
  Block<kWords> block;
  for (int i = 0; i < kWords; ++i) block.words[i] = 0x9E3779B9u * (i + 1);
  const auto check = [&](uint32_t add) {
    std::vector<uint32_t> got(kWords);
    CHECK(cudaMemcpy(got.data(), out, kWords * 4, cudaMemcpyDefault));
    for (int i = 0; i < kWords; ++i) REQUIRE(got[i] == block.words[i] + add);
  };
  Copy<<<1, 128>>>(block, out, 1);
  CHECK(cudaGetLastError());
  check(1);

  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  Copy<<<1, 64, 0, stream>>>(block, out, 2);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  check(2);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
  std::printf("%d bytes: ok\n", kWords * 4 + 12);
}

int main() {
  uint32_t* out;
  CHECK(cudaMalloc(&out, 32 << 10));
  CHECK(cudaMemset(out, 0, 32 << 10));
  Try<1020>(out);
  Try<1021>(out);
  Try<2048>(out);
  Try<8187>(out);
  CHECK(cudaFree(out));
  std::printf("ok\n");
}
