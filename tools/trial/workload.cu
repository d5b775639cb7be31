// The two programs of the trial, ordinary CUDA programs that know nothing of DetShare.
//
//   workload calibrate                        prints the iterations that suit this GPU
//   workload inference SECONDS ITERATIONS     short requests with pauses: somebody waits for each
//   workload training SECONDS ITERATIONS      the GPU is full all the time: only the speed counts
//
// The last two print "ready", wait for a line on stdin, and run for the time. They print one line of
// JSON, with a checksum of what the GPU has computed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kThreads = 256;
// A request is a CUDA graph of so many kernels, one after the other; so is a step of the training.
constexpr int kKernelsOfRequest = 40, kKernelsOfStep = 10;
constexpr double kRequestKernelSeconds = 25e-6, kStepKernelSeconds = 1e-3;

void Check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

__global__ void Work(const float* in, float* out, int iterations) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = in[i];
  for (int n = 0; n < iterations; ++n) value = value * 0.999f + 0.5f;
  out[i] = value;
}

// A graph of `kernels` equal kernels over `blocks` blocks.
class Graph {
 public:
  Graph(int blocks, int kernels, int iterations) : values_(static_cast<size_t>(blocks) * kThreads) {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i % 1000);
    Check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    Check(cudaMalloc(&in_, bytes()), "cudaMalloc");
    Check(cudaMalloc(&out_, bytes()), "cudaMalloc");
    Check(cudaMemcpy(in_, values_.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
    cudaGraph_t graph = nullptr;
    Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    for (int i = 0; i < kernels; ++i) Work<<<blocks, kThreads, 0, stream_>>>(in_, out_, iterations);
    Check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    Check(cudaGraphInstantiate(&executable_, graph, 0), "cudaGraphInstantiate");
    Check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    Run();
  }
  void Run() {
    Check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch");
    Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  uint64_t Checksum() {
    Check(cudaMemcpy(values_.data(), out_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    uint64_t sum = 14695981039346656037u;
    for (const float value : values_) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      sum = (sum ^ bits) * 1099511628211u;
    }
    return sum;
  }

 private:
  size_t bytes() const { return values_.size() * sizeof(float); }

  std::vector<float> values_;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  float *in_ = nullptr, *out_ = nullptr;
};

struct Shape {
  int inference_blocks = 0;  // half of the SMs
  int training_blocks = 0;   // all SMs, several times
};

Shape ShapeOf(const cudaDeviceProp& device) {
  return {std::max(1, device.multiProcessorCount / 2), device.multiProcessorCount * 8};
}

// The iterations with which a kernel takes `seconds`.
int Iterations(int blocks, double seconds) {
  int iterations = 1;
  for (;;) {
    constexpr int kKernels = 4;
    Graph graph(blocks, kKernels, iterations);
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const Clock::time_point begin = Clock::now();
      graph.Run();
      best = std::min(best, Seconds(Clock::now() - begin) / kKernels);
    }
    if (best >= seconds / 2 || iterations > 1'000'000'000 / 2)
      return std::max(1, static_cast<int>(iterations * seconds / best));
    iterations *= 2;
  }
}

void WaitForStart() {
  std::puts("ready");
  std::fflush(stdout);
  char line[16];
  if (std::fgets(line, sizeof(line), stdin) == nullptr) std::exit(1);
}

void Inference(int blocks, double seconds, int iterations) {
  Graph request(blocks, kKernelsOfRequest, iterations);
  std::vector<double> latencies;
  WaitForStart();
  const Clock::time_point begin = Clock::now();
  uint32_t random = 1;
  do {
    // 3 to 7 ms, the same ones in each run.
    random = random * 1664525u + 1013904223u;
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + (random >> 16) % 4000));
    const Clock::time_point sent = Clock::now();
    request.Run();
    latencies.push_back(Seconds(Clock::now() - sent) * 1e3);
  } while (Seconds(Clock::now() - begin) < seconds);
  std::sort(latencies.begin(), latencies.end());
  const auto quantile = [&](double q) {
    return latencies[static_cast<size_t>(q * static_cast<double>(latencies.size() - 1))];
  };
  std::printf(
      "{\"requests\": %zu, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"checksum\": \"%016llx\"}\n",
      latencies.size(), quantile(0.5), quantile(0.99),
      static_cast<unsigned long long>(request.Checksum()));
}

void Training(int blocks, double seconds, int iterations) {
  Graph step(blocks, kKernelsOfStep, iterations);
  WaitForStart();
  const Clock::time_point begin = Clock::now();
  int steps = 0;
  double passed = 0;
  do {
    step.Run();
    ++steps;
    passed = Seconds(Clock::now() - begin);
  } while (passed < seconds);
  std::printf("{\"steps\": %d, \"steps_per_second\": %.4f, \"checksum\": \"%016llx\"}\n", steps,
              steps / passed, static_cast<unsigned long long>(step.Checksum()));
}

}  // namespace

int main(int argc, char** argv) {
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0), "no GPU can be used");
  const Shape shape = ShapeOf(device);
  if (argc == 2 && std::strcmp(argv[1], "calibrate") == 0) {
    std::printf("{\"device\": \"%s\", \"inference\": %d, \"training\": %d}\n", device.name,
                Iterations(shape.inference_blocks, kRequestKernelSeconds),
                Iterations(shape.training_blocks, kStepKernelSeconds));
    return 0;
  }
  const double seconds = argc == 4 ? std::atof(argv[2]) : 0;
  const int iterations = argc == 4 ? std::atoi(argv[3]) : 0;
  if (seconds > 0 && iterations > 0 && std::strcmp(argv[1], "inference") == 0) {
    Inference(shape.inference_blocks, seconds, iterations);
  } else if (seconds > 0 && iterations > 0 && std::strcmp(argv[1], "training") == 0) {
    Training(shape.training_blocks, seconds, iterations);
  } else {
    std::fprintf(stderr, "usage: %s calibrate | inference|training SECONDS ITERATIONS\n", argv[0]);
    return 2;
  }
  return 0;
}
