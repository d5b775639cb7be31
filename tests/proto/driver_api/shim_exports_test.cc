// The generated entry points with implementations that only record their call.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "proto/driver_api/driver_api_table.h"
#include "proto/driver_api/shim_api.h"
#include "tests/proto/driver_api/recorder.h"

namespace detshare {

std::vector<Recorded> recorded;
CUresult enter_result = CUDA_SUCCESS;
bool in_host_function = false;
int per_thread_default_depth = 0;

namespace shim {

CUresult Unsupported(size_t row) {
  recorded.push_back({std::string("unsupported ") + kRows[row].symbol, {}, false, nullptr});
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace shim

namespace {

struct Fresh {
  Fresh() {
    recorded.clear();
    enter_result = CUDA_SUCCESS;
    in_host_function = false;
  }
};

const auto kStream = reinterpret_cast<CUstream>(uint64_t{0x5000});

size_t RowOf(const char* symbol) {
  for (size_t i = 0; i < kRowCount; ++i) {
    if (std::strcmp(kRows[i].symbol, symbol) == 0) return i;
  }
  return kRowCount;
}

TEST_CASE_METHOD(Fresh, "A supported entry point passes its arguments to its implementation") {
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc_v2(&address, 4096) == CUDA_SUCCESS);
  REQUIRE(recorded.size() == 1);
  CHECK(recorded[0].symbol == "cuMemAlloc_v2");
  CHECK(recorded[0].args == std::vector<uint64_t>{reinterpret_cast<uint64_t>(&address), 4096});
}

TEST_CASE_METHOD(Fresh, "A null pointer that must not be null never reaches the implementation") {
  CHECK(cuMemAlloc_v2(nullptr, 4096) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuModuleGetFunction(nullptr, nullptr, "f") == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuLaunchKernelEx_ptsz(nullptr, nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(recorded.empty());
}

TEST_CASE_METHOD(
    Fresh, "An optional pointer may be null, and so may host memory and lists that may be empty") {
  CHECK(cuMemGetInfo_v2(nullptr, nullptr) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoH_v2(nullptr, 0, 0) == CUDA_SUCCESS);
  CHECK(cuModuleEnumerateFunctions(nullptr, 0, nullptr) == CUDA_SUCCESS);
  CHECK(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
  CHECK(recorded.size() == 4);
}

TEST_CASE_METHOD(
    Fresh, "Before initialisation only the marked rows run, and the others return the reason") {
  enter_result = CUDA_ERROR_NOT_INITIALIZED;
  CUdeviceptr address = 0;
  int version = 0;
  CHECK(cuMemAlloc_v2(&address, 1) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(cuMemAlloc_v2(nullptr, 1) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(recorded.empty());
  CHECK(cuDriverGetVersion(&version) == CUDA_SUCCESS);
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(recorded.size() == 2);
}

TEST_CASE_METHOD(Fresh, "In a host function only the marked rows run") {
  in_host_function = true;
  CUdeviceptr address = 0;
  int version = 0;
  CHECK(cuMemAlloc_v2(&address, 1) == CUDA_ERROR_NOT_PERMITTED);
  CHECK(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) ==
        CUDA_ERROR_NOT_PERMITTED);
  CHECK(cuMemcpyAsync_ptsz(0, 0, 0, nullptr) == CUDA_ERROR_NOT_PERMITTED);
  CHECK(recorded.empty());
  // As natively, the driver looks at pointers first.
  CHECK(cuMemAlloc_v2(nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamQuery_ptsz(kStream) == CUDA_SUCCESS);
  CHECK(cuEventQuery(nullptr) == CUDA_SUCCESS);
  CHECK(cuDriverGetVersion(&version) == CUDA_SUCCESS);
  CHECK(recorded.size() == 3);
}

TEST_CASE_METHOD(Fresh, "A ptsz variant maps the default stream and leaves other streams alone") {
  CHECK(cuStreamSynchronize_ptsz(nullptr) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize_ptsz(kStream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
  REQUIRE(recorded.size() == 3);
  CHECK(recorded[0].symbol == "cuStreamSynchronize");
  CHECK(recorded[0].args[0] == reinterpret_cast<uint64_t>(CU_STREAM_PER_THREAD));
  CHECK(recorded[1].args[0] == reinterpret_cast<uint64_t>(kStream));
  CHECK(recorded[2].args[0] == 0);
}

TEST_CASE_METHOD(
    Fresh, "The ptsz variant of cuLaunchKernelEx maps the stream in a copy of the configuration") {
  CUlaunchConfig config{};
  CHECK(cuLaunchKernelEx_ptsz(&config, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
  REQUIRE(recorded.size() == 1);
  CHECK(recorded[0].symbol == "cuLaunchKernelEx");
  CHECK(recorded[0].config_stream == CU_STREAM_PER_THREAD);
  CHECK(config.hStream == nullptr);
}

TEST_CASE_METHOD(Fresh, "A struct that the call writes returns with the caller's stream") {
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  CUgraphExec exec = nullptr;
  CHECK(cuGraphInstantiateWithParams_ptsz(&exec, nullptr, &params) == CUDA_SUCCESS);
  REQUIRE(recorded.size() == 1);
  CHECK(recorded[0].symbol == "cuGraphInstantiateWithParams");
  CHECK(params.hUploadStream == nullptr);
}

TEST_CASE_METHOD(Fresh,
                 "A ptds variant calls the ordinary implementation within a per-thread scope") {
  CHECK(cuMemsetD8_v2_ptds(0x1000, 0, 16) == CUDA_SUCCESS);
  CHECK(cuMemsetD8_v2(0x1000, 0, 16) == CUDA_SUCCESS);
  REQUIRE(recorded.size() == 2);
  CHECK(recorded[0].symbol == "cuMemsetD8_v2");
  CHECK(recorded[0].per_thread_default);
  CHECK_FALSE(recorded[1].per_thread_default);
  CHECK(per_thread_default_depth == 0);
}

TEST_CASE_METHOD(Fresh,
                 "An older name of the same function reaches the newer one's implementation") {
  CHECK(cuEventDestroy(nullptr) == CUDA_SUCCESS);
  REQUIRE(recorded.size() == 1);
  CHECK(recorded[0].symbol == "cuEventDestroy_v2");
}

TEST_CASE_METHOD(Fresh,
                 "An unsupported entry point logs its name and returns CUDA_ERROR_NOT_SUPPORTED") {
  CHECK(cuModuleGetSurfRef(nullptr, nullptr, "t") == CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE(recorded.size() == 1);
  CHECK(recorded[0].symbol == "unsupported cuModuleGetSurfRef");
}

TEST_CASE_METHOD(Fresh,
                 "Every row has an entry point, and each unsupported one logs its own name") {
  for (size_t row = 0; row < kRowCount; ++row) {
    void* address = shim::EntryPoint(row);
    REQUIRE(address != nullptr);
    if (kRows[row].support != Support::kNone) continue;
    recorded.clear();
    const auto call = reinterpret_cast<CUresult (*)()>(address);
    CHECK(call() == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(recorded.size() == 1);
    CHECK(recorded[0].symbol == std::string("unsupported ") + kRows[row].symbol);
  }
}

TEST_CASE_METHOD(Fresh, "The entry point of a row is the exported function of that name") {
  CHECK(shim::EntryPoint(RowOf("cuMemAlloc_v2")) == reinterpret_cast<void*>(&::cuMemAlloc_v2));
  CHECK(shim::EntryPoint(RowOf("cuMemAlloc")) == reinterpret_cast<void*>(&::cuMemAlloc));
  CHECK(shim::EntryPoint(RowOf("cuLaunchKernel_ptsz")) ==
        reinterpret_cast<void*>(&::cuLaunchKernel_ptsz));
}

}  // namespace
}  // namespace detshare
