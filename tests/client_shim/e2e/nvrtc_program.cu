// Compiles at run time several times, with and without changes. NVRTC uses the driver's compile
// cache each time.
#include <cuda_runtime.h>
#include <nvrtc.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr char kSource[] =
    "extern \"C\" __global__ void scale(float* p, float x) { p[threadIdx.x] = N * p[threadIdx.x] / "
    "x; }";

std::string Compile(const std::vector<const char*>& options) {
  nvrtcProgram program;
  std::string ptx;
  size_t bytes = 0;
  if (nvrtcCreateProgram(&program, kSource, "scale.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS ||
      nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data()) !=
          NVRTC_SUCCESS ||
      nvrtcGetPTXSize(program, &bytes) != NVRTC_SUCCESS) {
    std::printf("NVRTC fails\n");
    std::exit(1);
  }
  ptx.resize(bytes);
  nvrtcGetPTX(program, ptx.data());
  nvrtcDestroyProgram(&program);
  return ptx;
}

}  // namespace

int main() {
  if (cudaFree(nullptr) != cudaSuccess) return 3;
  const std::vector<std::vector<const char*>> variants = {
      {"-DN=3", "--gpu-architecture=compute_90"},
      {"-DN=5", "--gpu-architecture=compute_90"},
      {"-DN=3", "--gpu-architecture=compute_80"},
      {"-DN=3", "--gpu-architecture=compute_90", "--use_fast_math"},
  };
  std::vector<std::string> first;
  for (const auto& options : variants) first.push_back(Compile(options));
  for (size_t i = 0; i < variants.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (first[i] == first[j]) std::printf("variants %zu and %zu are the same\n", j, i);
    }
    if (Compile(variants[i]) != first[i]) std::printf("variant %zu has changed\n", i);
  }
  std::printf("ok\n");
  return 0;
}
