// NVRTC: compiles to machine code at run time, with different options and twice the same, and runs
// it. Machine code for another architecture does not load.
#include <nvrtc.h>

#include <cmath>
#include <string>

#include "check_driver.h"

#define CHECK_RTC(call) REQUIRE((call) == NVRTC_SUCCESS)

constexpr int kCount = 256;

std::vector<char> Compile(const std::vector<std::string>& options) {
  constexpr char kSource[] =
      "extern \"C\" __global__ void Combine(const float* a, const float* b, float* c) {\n"
      "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  c[i] = a[i] * b[i] + FACTOR;\n"
      "}\n";
  nvrtcProgram program;
  CHECK_RTC(nvrtcCreateProgram(&program, kSource, "combine.cu", 0, nullptr, nullptr));
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  CHECK_RTC(nvrtcCompileProgram(program, static_cast<int>(texts.size()), texts.data()));
  size_t bytes = 0;
  CHECK_RTC(nvrtcGetCUBINSize(program, &bytes));
  std::vector<char> code(bytes);
  CHECK_RTC(nvrtcGetCUBIN(program, code.data()));
  CHECK_RTC(nvrtcDestroyProgram(&program));
  return code;
}

int main() {
  const CUdevice device = check::UsePrimaryContext();
  int major = 0, minor = 0;
  CHECK_CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  CHECK_CU(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(major * 10 + minor);

  check::Random random(7);
  std::vector<float> a(kCount), b(kCount), want(kCount);
  for (int i = 0; i < kCount; ++i) a[i] = random.NextFloat(), b[i] = random.NextFloat();
  float* const device_a = check::Upload(a);
  float* const device_b = check::Upload(b);
  float* const device_c = check::Zeroed<float>(kCount);
  const struct {
    const char* name;
    bool fused;
    float factor;
  } kVariants[] = {
      {"fused", true, 3}, {"not fused", false, 3}, {"again", true, 3}, {"other", true, 5}};
  for (const auto& variant : kVariants) {
    const std::vector<char> code =
        Compile({architecture, variant.fused ? "--fmad=true" : "--fmad=false",
                 "-DFACTOR=" + std::to_string(variant.factor) + "f"});
    CUmodule module;
    CHECK_CU(cuModuleLoadData(&module, code.data()));
    CUfunction function;
    CHECK_CU(cuModuleGetFunction(&function, module, "Combine"));
    const void* arguments[] = {&device_a, &device_b, &device_c};
    CHECK_CU(cuLaunchKernel(function, kCount / 64, 1, 1, 64, 1, 1, 0, nullptr,
                            const_cast<void**>(arguments), nullptr));
    for (int i = 0; i < kCount; ++i) {
      const volatile float product = a[i] * b[i];
      want[i] = variant.fused ? std::fma(a[i], b[i], variant.factor) : product + variant.factor;
    }
    check::Compare(variant.name, check::Download(device_c, kCount), want);
    CHECK_CU(cuModuleUnload(module));
  }

  const std::vector<char> foreign = Compile({"--gpu-architecture=sm_75", "-DFACTOR=1.0f"});
  CUmodule module;
  EXPECT_CU(cuModuleLoadData(&module, foreign.data()),
            major == 7 ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_c));
  return check::Ok();
}
