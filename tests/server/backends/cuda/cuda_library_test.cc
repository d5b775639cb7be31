#include "server/backends/cuda/cuda_library.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "proto/images/fatbin.h"
#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

std::vector<std::string> g_inputs;

DriverApi DriverWithLinker() {
  DriverApi api = StandInDriver();
  api.cuLinkCreate = [](unsigned, CUjit_option*, void**, CUlinkState*) { return CUDA_SUCCESS; };
  api.cuLinkAddData = [](CUlinkState, CUjitInputType, void*, size_t, const char* name, unsigned,
                         CUjit_option*, void**) {
    g_inputs.emplace_back(name);
    return CUDA_SUCCESS;
  };
  api.cuLinkComplete = [](CUlinkState, void** image, size_t* bytes) {
    static char linked[] = "linked";
    *image = linked;
    *bytes = sizeof(linked) - 1;
    return CUDA_SUCCESS;
  };
  api.cuLinkDestroy = [](CUlinkState) { return CUDA_SUCCESS; };
  return api;
}

struct LinkSession : StandInSession {
  LinkSession() : StandInSession(DriverWithLinker()) { g_inputs.clear(); }
  CompileLogs logs;
};

TEST_CASE_METHOD(LinkSession, "The driver links inputs that are whole") {
  const std::string text = ".version 8.0\n";
  const LinkInputImage inputs[] = {
      {CU_JIT_INPUT_PTX, "a.ptx", text},
      {CU_JIT_INPUT_FATBINARY, "b", images::WritePtxFatbin({&text, 1}, 75)},
      {CU_JIT_INPUT_LIBRARY, "c.a", "!<arch>\n"}};
  const auto image = LinkImages(context, inputs, {}, logs);
  REQUIRE(image.ok());
  CHECK(*image == "linked");
  CHECK(g_inputs == std::vector<std::string>{"a.ptx", "b", "c.a"});
}

TEST_CASE_METHOD(LinkSession, "No input of a link reaches the driver if one of them is not whole") {
  const std::string text = ".version 8.0\n";
  std::string cut = images::WritePtxFatbin({&text, 1}, 75);
  cut.pop_back();
  const int type = GENERATE(CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_PTX, CU_JIT_INPUT_FATBINARY,
                            CU_JIT_INPUT_OBJECT, CU_JIT_INPUT_LIBRARY);
  const LinkInputImage inputs[] = {{CU_JIT_INPUT_PTX, "a.ptx", text}, {type, "b", cut}};
  const auto image = LinkImages(context, inputs, {}, logs);
  CHECK(CudaResultOf(image.status()) == kCudaErrorInvalidImage);
  CHECK_THAT(std::string(image.status().message()),
             Catch::Contains("input b: a fatbin is cut off"));
  CHECK(g_inputs.empty());
}

int g_attributes_set;

DriverApi DriverWithKernels() {
  DriverApi api = StandInDriver();
  api.cuKernelGetFunction = [](CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
  };
  api.cuKernelGetParamInfo = [](CUkernel, size_t, size_t*, size_t*) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  api.cuKernelGetAttribute = [](int* value, CUfunction_attribute, CUkernel, CUdevice) {
    *value = 0;
    return CUDA_SUCCESS;
  };
  api.cuKernelSetAttribute = [](CUfunction_attribute, int value, CUkernel, CUdevice) {
    ++g_attributes_set;
    return value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  api.cuFuncSetAttribute = [](CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; };
  return api;
}

struct KernelSession : StandInSession {
  int slices = 0;
  std::unique_ptr<CudaKernel> kernel;
  static constexpr int kAttribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

  KernelSession() : StandInSession(DriverWithKernels()) {
    g_attributes_set = 0;
    kernel = *CudaKernel::Create(context, *space, reinterpret_cast<CUkernel>(this), "kernel",
                                 /*prints=*/false, /*bound=*/false);
    context.ordinary.slice =
        std::make_unique<OrdinarySlice>([this](std::chrono::microseconds) { ++slices; });
    context.ordinary.slice->ShareWith([] { return true; });
  }
};

TEST_CASE_METHOD(KernelSession, "The driver sets an attribute only if its value changes") {
  for (const int value : {100, 100, 200, 200, 100})
    CHECK(kernel->SetAttribute(kAttribute, value).ok());
  CHECK(g_attributes_set == 3);
  // A value that was refused is not kept.
  CHECK_FALSE(kernel->SetAttribute(kAttribute, -1).ok());
  CHECK_FALSE(kernel->SetAttribute(kAttribute, -1).ok());
  CHECK(g_attributes_set == 5);
}

TEST_CASE_METHOD(KernelSession, "While the driver sets an attribute, the time slice is longer") {
  CHECK(kernel->SetAttribute(kAttribute, 100).ok());
  CHECK(slices == 2);
  CHECK(kernel->SetAttribute(kAttribute, 100).ok());
  CHECK(slices == 2);
}

}  // namespace
}  // namespace detshare::cuda
