// One program on two devices: copies between them in every way, events of one device that the other
// waits for, and host memory that both reach.
#include <vector>

#include "check.h"

namespace {

constexpr int kCount = 1 << 18;
constexpr size_t kBytes = kCount * sizeof(int);

__global__ void Fill(int* values, int count, int factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = i * factor;
}

__global__ void Add(int* values, int count, int more) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += more;
}

__device__ int variable = 5;
__global__ void AddVariable(int* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += variable;
}

std::vector<int> Want(int factor, int more) {
  std::vector<int> want(kCount);
  for (int i = 0; i < kCount; ++i) want[i] = i * factor + more;
  return want;
}

std::vector<int> Get(const int* device) {
  std::vector<int> got(kCount);
  CHECK(cudaMemcpy(got.data(), device, kBytes, cudaMemcpyDeviceToHost));
  return got;
}

constexpr dim3 kGrid{kCount / 256, 1, 1}, kBlock{256, 1, 1};

}  // namespace

int main() {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  REQUIRE(devices >= 2);
  int* memory[2];
  cudaStream_t stream[2];
  cudaEvent_t event[2];
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    CHECK(cudaMalloc(&memory[d], kBytes));
    CHECK(cudaStreamCreateWithFlags(&stream[d], cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event[d], cudaEventDisableTiming));
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, memory[d]));
    REQUIRE(attributes.type == cudaMemoryTypeDevice && attributes.device == d);
  }
  REQUIRE(memory[0] + kCount <= memory[1] || memory[1] + kCount <= memory[0]);

  // Kernels of both devices from one host thread. Only streams and events order the copy.
  CHECK(cudaSetDevice(0));
  Fill<<<kGrid, kBlock, 0, stream[0]>>>(memory[0], kCount, 3);
  CHECK(cudaEventRecord(event[0], stream[0]));
  CHECK(cudaSetDevice(1));
  CHECK(cudaStreamWaitEvent(stream[1], event[0], 0));
  CHECK(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, kBytes, stream[1]));
  Add<<<kGrid, kBlock, 0, stream[1]>>>(memory[1], kCount, 1);
  CHECK(cudaEventRecord(event[1], stream[1]));
  CHECK(cudaSetDevice(0));
  CHECK(cudaStreamWaitEvent(stream[0], event[1], 0));
  CHECK(cudaMemcpyPeerAsync(memory[0], 0, memory[1], 1, kBytes, stream[0]));
  CHECK(cudaStreamSynchronize(stream[0]));
  check::Compare("there and back", Get(memory[0]), Want(3, 1));

  // Many rounds. Each needs the one before.
  for (int round = 0; round < 50; ++round) {
    const int to = round % 2 == 0 ? 1 : 0, from = 1 - to;
    CHECK(cudaSetDevice(from));
    Add<<<kGrid, kBlock, 0, stream[from]>>>(memory[from], kCount, 1);
    CHECK(cudaMemcpyAsync(memory[to], memory[from], kBytes, cudaMemcpyDefault, stream[from]));
    CHECK(cudaEventRecord(event[from], stream[from]));
    CHECK(cudaSetDevice(to));
    CHECK(cudaStreamWaitEvent(stream[to], event[from], 0));
  }
  CHECK(cudaDeviceSynchronize());
  check::Compare("fifty rounds", Get(memory[0]), Want(3, 51));

  // Synchronous copies are ordered with the default streams of both devices.
  CHECK(cudaSetDevice(0));
  Fill<<<kGrid, kBlock>>>(memory[0], kCount, 7);
  CHECK(cudaMemcpyPeer(memory[1], 1, memory[0], 0, kBytes));
  CHECK(cudaSetDevice(1));
  Add<<<kGrid, kBlock>>>(memory[1], kCount, 2);
  CHECK(cudaSetDevice(0));
  CHECK(cudaMemcpy(memory[0], memory[1], kBytes, cudaMemcpyDefault));
  check::Compare("default streams", Get(memory[0]), Want(7, 2));

  // Boxes: the left half of the rows.
  cudaMemcpy3DPeerParms box{};
  constexpr size_t kRow = 1024, kRows = kBytes / kRow;
  box.srcDevice = 0, box.dstDevice = 1;
  box.srcPtr = make_cudaPitchedPtr(memory[0], kRow, kRow, kRows);
  box.dstPtr = make_cudaPitchedPtr(memory[1], kRow, kRow, kRows);
  box.extent = make_cudaExtent(kRow / 2, kRows, 1);
  CHECK(cudaSetDevice(1));
  CHECK(cudaMemset(memory[1], 0, kBytes));
  CHECK(cudaDeviceSynchronize());  // the stream does not wait for the default stream
  CHECK(cudaMemcpy3DPeerAsync(&box, stream[1]));
  CHECK(cudaStreamSynchronize(stream[1]));
  std::vector<int> want = Want(7, 2);
  for (int i = 0; i < kCount; ++i) {
    if (i % 256 >= 128) want[i] = 0;
  }
  check::Compare("half the rows", Get(memory[1]), want);

  // Copies between the host and the memory of the device that is not current.
  CHECK(cudaSetDevice(0));
  want = Want(11, 0);
  CHECK(cudaMemcpy(memory[1], want.data(), kBytes, cudaMemcpyHostToDevice));
  check::Compare("pageable", Get(memory[1]), want);
  int* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, kBytes));
  CHECK(cudaMemcpyAsync(pinned, memory[1], kBytes, cudaMemcpyDeviceToHost, stream[0]));
  CHECK(cudaStreamSynchronize(stream[0]));
  check::Compare("pinned", std::vector<int>(pinned, pinned + kCount), want);

  // Both devices reach pinned memory, whichever device was current when it was made.
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    Add<<<kGrid, kBlock, 0, stream[d]>>>(pinned, kCount, 4);
    CHECK(cudaStreamSynchronize(stream[d]));
  }
  check::Compare("pinned by both", std::vector<int>(pinned, pinned + kCount), Want(11, 8));
  std::vector<int> ordinary = Want(1, 0);
  CHECK(cudaHostRegister(ordinary.data(), kBytes, cudaHostRegisterPortable));
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    CHECK(cudaMemcpyAsync(memory[d], ordinary.data(), kBytes, cudaMemcpyHostToDevice, stream[d]));
    CHECK(cudaStreamSynchronize(stream[d]));
    check::Compare("registered", Get(memory[d]), Want(1, 0));
  }
  CHECK(cudaHostUnregister(ordinary.data()));

  // A variable has a copy on each device.
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    const int value = 100 * (d + 1);
    CHECK(cudaMemcpyToSymbol(variable, &value, sizeof(value)));
  }
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    AddVariable<<<kGrid, kBlock>>>(memory[d], kCount);
    check::Compare("variable", Get(memory[d]), Want(1, 100 * (d + 1)));
  }

  // Freed while another device is current. The other device's memory stays.
  CHECK(cudaSetDevice(1));
  CHECK(cudaFree(memory[0]));
  check::Compare("what is left", Get(memory[1]), Want(1, 200));
  CHECK(cudaFree(memory[1]));
  CHECK(cudaFreeHost(pinned));
  EXPECT(cudaMemcpyPeerAsync(memory[0], 0, memory[1], 7, 16, stream[0]), cudaErrorInvalidDevice);
  for (int d = 0; d < 2; ++d) {
    CHECK(cudaSetDevice(d));
    CHECK(cudaEventDestroy(event[d]));
    CHECK(cudaStreamDestroy(stream[d]));
    CHECK(cudaDeviceReset());
  }
  return check::Ok();
}
