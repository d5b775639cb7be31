#include "server/backends/cuda/cuda_library.h"

#include <catch2/catch.hpp>
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

}  // namespace
}  // namespace detshare::cuda
