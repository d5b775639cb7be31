// nvJitLink and NVRTC: compiles two pieces of code at run time, links them into one module, and
// runs it.
#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>

#include <string>

#include "../check.h"

#define CHECK_LINK(call) REQUIRE((call) == NVJITLINK_SUCCESS)
#define CHECK_RTC(call) REQUIRE((call) == NVRTC_SUCCESS)
#define CHECK_DRIVER(call) REQUIRE((call) == CUDA_SUCCESS)

std::vector<char> Compile(const char* source, const char* architecture) {
  nvrtcProgram program;
  CHECK_RTC(nvrtcCreateProgram(&program, source, "piece.cu", 0, nullptr, nullptr));
  const char* options[] = {architecture, "-rdc=true"};
  CHECK_RTC(nvrtcCompileProgram(program, 2, options));
  size_t bytes = 0;
  CHECK_RTC(nvrtcGetPTXSize(program, &bytes));
  std::vector<char> ptx(bytes);
  CHECK_RTC(nvrtcGetPTX(program, ptx.data()));
  CHECK_RTC(nvrtcDestroyProgram(&program));
  return ptx;
}

int main() {
  CHECK(cudaFree(nullptr));
  int major = 0, minor = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  const std::string number = std::to_string(major * 10 + minor);
  const std::vector<char> callee =
      Compile("__device__ int Twice(int x) { return 2 * x; }", ("-arch=compute_" + number).c_str());
  const std::vector<char> caller = Compile(
      "__device__ int Twice(int x);\n"
      "extern \"C\" __global__ void Apply(int* values) {\n"
      "  values[threadIdx.x] = Twice(values[threadIdx.x]) + 1;\n"
      "}\n",
      ("-arch=compute_" + number).c_str());

  const std::string architecture = "-arch=sm_" + number;
  const char* options[] = {architecture.c_str()};
  nvJitLinkHandle link;
  CHECK_LINK(nvJitLinkCreate(&link, 1, options));
  CHECK_LINK(nvJitLinkAddData(link, NVJITLINK_INPUT_PTX, callee.data(), callee.size(), "callee"));
  CHECK_LINK(nvJitLinkAddData(link, NVJITLINK_INPUT_PTX, caller.data(), caller.size(), "caller"));
  CHECK_LINK(nvJitLinkComplete(link));
  size_t bytes = 0;
  CHECK_LINK(nvJitLinkGetLinkedCubinSize(link, &bytes));
  std::vector<char> cubin(bytes);
  CHECK_LINK(nvJitLinkGetLinkedCubin(link, cubin.data()));
  CHECK_LINK(nvJitLinkDestroy(&link));

  CUmodule module;
  CHECK_DRIVER(cuModuleLoadData(&module, cubin.data()));
  CUfunction function;
  CHECK_DRIVER(cuModuleGetFunction(&function, module, "Apply"));
  std::vector<int> values(64), want(64);
  for (int i = 0; i < 64; ++i) {
    values[i] = i * i;
    want[i] = 2 * i * i + 1;
  }
  int* device = check::Upload(values);
  void* arguments[] = {&device};
  CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
  check::Compare("linked code", check::Download(device, 64), want);
  CHECK(cudaFree(device));
  CHECK_DRIVER(cuModuleUnload(module));
  return check::Ok();
}
