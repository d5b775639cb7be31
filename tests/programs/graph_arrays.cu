// Arrays in graphs: copies to, from and between them, captured and made as nodes, and nodes whose
// array changes later. Also batches of copies with arrays.
#include "check.h"

constexpr std::size_t kWidth = 64, kHeight = 32, kBytes = kWidth * sizeof(unsigned);

__global__ void Shift(cudaTextureObject_t texture, unsigned* out) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x < static_cast<int>(kWidth))
    out[y * kWidth + x] = tex2D<unsigned>(texture, (x + 1) % kWidth, y) + 1;
}

std::vector<unsigned> Pattern(unsigned seed) {
  std::vector<unsigned> values(kWidth * kHeight);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<unsigned>(i) * 2654435761u + seed;
  return values;
}

std::vector<unsigned> Shifted(const std::vector<unsigned>& values) {
  std::vector<unsigned> out(values.size());
  for (std::size_t y = 0; y < kHeight; ++y) {
    for (std::size_t x = 0; x < kWidth; ++x)
      out[y * kWidth + x] = values[y * kWidth + (x + 1) % kWidth] + 1;
  }
  return out;
}

cudaArray_t Make() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
  cudaArray_t array = nullptr;
  CHECK(cudaMallocArray(&array, &format, kWidth, kHeight));
  return array;
}

std::vector<unsigned> Contents(cudaArray_t array) {
  std::vector<unsigned> values(kWidth * kHeight);
  CHECK(cudaMemcpy2DFromArray(values.data(), kBytes, array, 0, 0, kBytes, kHeight,
                              cudaMemcpyDeviceToHost));
  return values;
}

// One graph copies `host` to an array, shifts it through a texture, and copies it back.
void Captured(cudaStream_t stream) {
  cudaArray_t array = Make(), copy = Make();
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = copy;
  cudaTextureDesc sampling = {};
  sampling.addressMode[0] = sampling.addressMode[1] = cudaAddressModeClamp;
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
  unsigned* device = check::Zeroed<unsigned>(kWidth * kHeight);
  std::vector<unsigned> host = Pattern(1), got(kWidth * kHeight);

  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, host.data(), kBytes, kBytes, kHeight,
                                 cudaMemcpyHostToDevice, stream));
  cudaMemcpy3DParms between = {};
  between.srcArray = array;
  between.dstArray = copy;
  between.extent = make_cudaExtent(kWidth, kHeight, 1);
  between.kind = cudaMemcpyDeviceToDevice;
  CHECK(cudaMemcpy3DAsync(&between, stream));
  Shift<<<dim3(1, kHeight), kWidth, 0, stream>>>(texture, device);
  CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, device, kBytes, kBytes, kHeight,
                                 cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaMemcpy2DFromArrayAsync(got.data(), kBytes, array, 0, 0, kBytes, kHeight,
                                   cudaMemcpyDeviceToHost, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  std::size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (unsigned round = 0; round < 3; ++round) {
    // Written in place, because the graph reads this memory.
    std::memcpy(host.data(), Pattern(round * 1000).data(), host.size() * sizeof(unsigned));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    check::Compare("captured", got, Shifted(Pattern(round * 1000)));
  }
  std::printf("%zu nodes\n", nodes);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
  CHECK(cudaFreeArray(copy));
  CHECK(cudaFree(device));
}

// A node whose array is changed.
void Nodes(cudaStream_t stream) {
  cudaArray_t first = Make(), second = Make();
  const std::vector<unsigned> zeros(kWidth * kHeight, 0u), values = Pattern(7);
  for (cudaArray_t array : {first, second}) {
    CHECK(cudaMemcpy2DToArray(array, 0, 0, zeros.data(), kBytes, kBytes, kHeight,
                              cudaMemcpyHostToDevice));
  }
  unsigned* device = check::Upload(values);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(device, kBytes, kWidth, kHeight);
  copy.dstArray = first;
  copy.dstPos = make_cudaPos(8, 4, 0);
  copy.extent = make_cudaExtent(16, 8, 1);
  copy.kind = cudaMemcpyDeviceToDevice;
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t node;
  CHECK(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy));
  cudaMemcpy3DParms read = {};
  CHECK(cudaGraphMemcpyNodeGetParams(node, &read));
  std::printf("node: array %d, at %zu %zu\n", read.dstArray == first, read.dstPos.x, read.dstPos.y);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  copy.dstArray = second;
  copy.dstPos = make_cudaPos(0, 16, 0);
  CHECK(cudaGraphMemcpyNodeSetParams(node, &copy));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<unsigned> want_first = zeros, want_second = zeros;
  for (std::size_t y = 0; y < 8; ++y) {
    for (std::size_t x = 0; x < 16; ++x) {
      want_first[(y + 4) * kWidth + x + 8] = values[y * kWidth + x];
      want_second[(y + 16) * kWidth + x] = values[y * kWidth + x];
    }
  }
  check::Compare("first array", Contents(first), want_first);
  check::Compare("second array", Contents(second), want_second);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFreeArray(first));
  CHECK(cudaFreeArray(second));
  CHECK(cudaFree(device));
}

// If an array takes part, lengths count elements.
void Batched(cudaStream_t stream) {
  cudaArray_t first = Make(), second = Make();
  const std::vector<unsigned> values = Pattern(9);
  unsigned* device = check::Upload(values);
  unsigned* out = check::Zeroed<unsigned>(kWidth * kHeight);
  cudaMemcpy3DBatchOp operations[3] = {};
  for (cudaMemcpy3DBatchOp& operation : operations) {
    operation.extent = make_cudaExtent(kWidth, kHeight, 1);
    operation.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  }
  operations[0].src.type = cudaMemcpyOperandTypePointer;
  operations[0].src.op.ptr.ptr = device;
  operations[0].src.op.ptr.rowLength = kWidth;
  operations[0].dst.type = cudaMemcpyOperandTypeArray;
  operations[0].dst.op.array.array = first;
  operations[1].src.type = operations[1].dst.type = cudaMemcpyOperandTypeArray;
  operations[1].src.op.array.array = first;
  operations[1].dst.op.array.array = second;
  operations[2].src.type = cudaMemcpyOperandTypeArray;
  operations[2].src.op.array.array = second;
  operations[2].src.op.array.offset = {4, 2, 0};
  operations[2].dst.type = cudaMemcpyOperandTypePointer;
  operations[2].dst.op.ptr.ptr = out;
  operations[2].dst.op.ptr.rowLength = kWidth;
  operations[2].extent = make_cudaExtent(10, 5, 1);
  // The copies of one batch are not ordered among themselves.
  for (cudaMemcpy3DBatchOp& operation : operations)
    CHECK(cudaMemcpy3DBatchAsync(1, &operation, 0, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<unsigned> want(kWidth * kHeight, 0u);
  for (std::size_t y = 0; y < 5; ++y) {
    for (std::size_t x = 0; x < 10; ++x) want[y * kWidth + x] = values[(y + 2) * kWidth + x + 4];
  }
  check::Compare("batched", check::Download(out, kWidth * kHeight), want);
  check::Compare("whole array", Contents(second), values);
  CHECK(cudaFreeArray(first));
  CHECK(cudaFreeArray(second));
  CHECK(cudaFree(device));
  CHECK(cudaFree(out));
}

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  Captured(stream);
  Nodes(stream);
  Batched(stream);
  CHECK(cudaStreamDestroy(stream));
  return check::Ok();
}
