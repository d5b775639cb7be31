// A server of a language model, as far as its memory goes: weights and a KV cache in physical memory
// at addresses that it keeps, and a step in a CUDA graph that was captured once. It sleeps as
// such servers do: it gives the physical memory back and keeps the addresses and the graph.
//
//   sleeping_server PERMILLE SEED     takes this part of the card's whole memory
//
// It carries out the lines of its standard input, and prints a line for each:
//
//   ask N      answers request N; the answer depends on every word of the weights
//   sleep      gives the memory back; the weights are in host memory meanwhile
//   discard    gives the memory back, the weights too
//   wake       takes the memory again and restores the weights, after `discard` as from a file
//
// A `wake` for which there is no room leaves the server asleep, with all it needs to wake later. At
// the end of the input it prints `ok`.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void Check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorName(result));
  std::exit(1);
}

const char* Name(CUresult result) {
  const char* name = nullptr;
  return cuGetErrorName(result, &name) == CUDA_SUCCESS ? name : "an unknown error";
}

void Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: %s\n", call, Name(result));
  std::exit(1);
}

__host__ __device__ uint64_t Word(uint64_t index, uint64_t seed) {
  uint64_t value = (index + 1) * 0x9E3779B97F4A7C15ull + seed;
  value = (value ^ (value >> 31)) * 0xBF58476D1CE4E5B9ull;
  return value ^ (value >> 29);
}

__global__ void Load(uint64_t* weights, uint64_t first, uint64_t count, uint64_t seed) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    weights[i] = Word(first + i, seed);
}

// A prefill: the cache gets what the request needs.
__global__ void Fill(uint64_t* cache, uint64_t count, const uint64_t* request) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    cache[i] = Word(i, *request);
}

// Sums of integers, so that the order of the blocks does not matter.
__global__ void Sum(const uint64_t* words, uint64_t first, uint64_t count, const uint64_t* request,
                    unsigned long long* sum) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    mine += words[i] ^ Word(first + i, *request);
  atomicAdd(sum, mine);
}

// A range of addresses that has physical memory while the server is awake.
struct Range {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUmemGenericAllocationHandle memory = 0;
  bool mapped = false;
  uint64_t* words() const { return reinterpret_cast<uint64_t*>(address); }
  uint64_t count() const { return bytes / sizeof(uint64_t); }
};

class Server {
 public:
  Server(uint64_t permille, uint64_t seed) : seed_(seed) {
    size_t free = 0, total = 0, unit = 0;
    Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    Check(cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, 0),
          "cudaDeviceGetAttribute");
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    Check(cuMemGetAllocationGranularity(&unit, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          "cuMemGetAllocationGranularity");
    // Two thirds of the memory are weights, in several pieces as a framework allocates them.
    const size_t piece = total / 1000 * permille / kPieces / unit * unit;
    for (int i = 0; i < kPieces; ++i) {
      Range& range = i < kPieces * 2 / 3 ? weights_.emplace_back() : cache_.emplace_back();
      range.bytes = piece;
      Check(cuMemAddressReserve(&range.address, range.bytes, 0, 0, 0), "cuMemAddressReserve");
    }
    Check(cudaMalloc(&request_, sizeof(*request_)), "cudaMalloc");
    Check(cudaMalloc(&sum_, sizeof(*sum_)), "cudaMalloc");
    const CUresult result = Take();
    Check(result, "cuMemCreate");
    ReadFile();
    Capture();
    std::printf("serves with %zu MiB\n", (piece * kPieces) >> 20);
  }

  void Ask(uint64_t request) {
    if (asleep_) {
      std::printf("asleep\n");
      return;
    }
    Check(cudaMemcpy(request_, &request, sizeof(request), cudaMemcpyHostToDevice), "cudaMemcpy");
    Check(cudaGraphLaunch(step_, nullptr), "cudaGraphLaunch");
    unsigned long long answer = 0;
    Check(cudaMemcpy(&answer, sum_, sizeof(answer), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::printf("answer %" PRIu64 ": %016llx\n", request, answer);
  }

  void Sleep(bool keeps_weights) {
    if (asleep_) {
      std::printf("sleeps already\n");
      return;
    }
    for (const Range& range : weights_) {
      if (!keeps_weights) break;
      void* copy = nullptr;
      Check(cudaMallocHost(&copy, range.bytes), "cudaMallocHost");
      Check(cudaMemcpy(copy, range.words(), range.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      copies_.push_back(copy);
    }
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    GiveBack();
    asleep_ = true;
    std::printf("sleeps%s\n", keeps_weights ? "" : " without weights");
  }

  void Wake() {
    if (!asleep_) {
      std::printf("is awake\n");
      return;
    }
    if (const CUresult result = Take(); result != CUDA_SUCCESS) {
      GiveBack();
      std::printf("no room: %s\n", Name(result));
      return;
    }
    for (size_t i = 0; i < copies_.size(); ++i) {
      Check(cudaMemcpy(weights_[i].words(), copies_[i], weights_[i].bytes, cudaMemcpyHostToDevice),
            "cudaMemcpy");
      Check(cudaFreeHost(copies_[i]), "cudaFreeHost");
    }
    if (copies_.empty()) ReadFile();
    copies_.clear();
    asleep_ = false;
    std::printf("awake\n");
  }

 private:
  static constexpr int kPieces = 6;

  template <typename Visit>
  void ForEach(const Visit& visit) {
    for (Range& range : weights_) visit(range);
    for (Range& range : cache_) visit(range);
  }

  // Takes memory for all ranges. After an error some of them have none.
  CUresult Take() {
    CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = CUDA_SUCCESS;
    ForEach([&](Range& range) {
      if (result != CUDA_SUCCESS) return;
      result = cuMemCreate(&range.memory, range.bytes, &properties_, 0);
      if (result != CUDA_SUCCESS) return;
      Check(cuMemMap(range.address, range.bytes, 0, range.memory, 0), "cuMemMap");
      Check(cuMemSetAccess(range.address, range.bytes, &access, 1), "cuMemSetAccess");
      range.mapped = true;
    });
    return result;
  }

  void GiveBack() {
    ForEach([](Range& range) {
      if (!range.mapped) return;
      Check(cuMemUnmap(range.address, range.bytes), "cuMemUnmap");
      Check(cuMemRelease(range.memory), "cuMemRelease");
      range.mapped = false;
    });
  }

  void ReadFile() {
    uint64_t first = 0;
    for (const Range& range : weights_) {
      Load<<<sms_, 256>>>(range.words(), first, range.count(), seed_);
      first += range.count();
    }
    Check(cudaDeviceSynchronize(), "Load");
  }

  // Captures a step: the addresses are in the graph, so they must hold after every wake.
  void Capture() {
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    Check(cudaStreamCreate(&stream), "cudaStreamCreate");
    Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    Check(cudaMemsetAsync(sum_, 0, sizeof(*sum_), stream), "cudaMemsetAsync");
    for (const Range& range : cache_)
      Fill<<<sms_, 256, 0, stream>>>(range.words(), range.count(), request_);
    uint64_t first = 0;
    for (const std::vector<Range>* ranges : {&weights_, &cache_}) {
      for (const Range& range : *ranges) {
        Sum<<<sms_, 256, 0, stream>>>(range.words(), first, range.count(), request_, sum_);
        first += range.count();
      }
    }
    Check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    Check(cudaGraphInstantiate(&step_, graph, 0), "cudaGraphInstantiate");
  }

  const uint64_t seed_;
  int sms_ = 0;
  CUmemAllocationProp properties_{};
  std::vector<Range> weights_, cache_;
  std::vector<void*> copies_;  // of the weights, while the server sleeps with them
  uint64_t* request_ = nullptr;
  unsigned long long* sum_ = nullptr;
  cudaGraphExec_t step_ = nullptr;
  bool asleep_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::printf("sleeping_server PERMILLE SEED\n");
    return 2;
  }
  Server server(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10));
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof(line), stdin) != nullptr) {
    const std::string command(line, std::strcspn(line, " \n"));
    if (command == "ask") {
      server.Ask(std::strtoull(line + command.size(), nullptr, 10));
    } else if (command == "sleep" || command == "discard") {
      server.Sleep(command == "sleep");
    } else if (command == "wake") {
      server.Wake();
    } else {
      std::printf("does not know %s\n", command.c_str());
    }
    std::fflush(stdout);
  }
  std::printf("ok\n");
  return 0;
}
