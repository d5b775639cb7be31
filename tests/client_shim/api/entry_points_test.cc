// The library's replies without a session.
#include <catch2/catch.hpp>
#include <string>

#include "proto/driver_api/cuda_unrenamed.h"

namespace {

TEST_CASE("cuGetProcAddress gives the exported functions") {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status;
  REQUIRE(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT,
                              &status) == CUDA_SUCCESS);
  CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
  CHECK(function == reinterpret_cast<void*>(&cuMemAlloc_v2));
  REQUIRE(cuGetProcAddress_v2("cuGetProcAddress", &function, 12000, 0, &status) == CUDA_SUCCESS);
  CHECK(function == reinterpret_cast<void*>(&cuGetProcAddress_v2));
  REQUIRE(cuGetProcAddress_v2("cuNoSuchThing", &function, 12000, 0, &status) == CUDA_SUCCESS);
  CHECK(function == nullptr);
  CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  REQUIRE(cuGetProcAddress("cuMemAlloc", &function, 11030, 0) == CUDA_SUCCESS);
  CHECK(function == reinterpret_cast<void*>(&cuMemAlloc_v2));
  CHECK(cuGetProcAddress("cuNoSuchThing", &function, 11030, 0) == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("Versions and names of errors need no session") {
  int version = 0;
  REQUIRE(cuDriverGetVersion(&version) == CUDA_SUCCESS);
  CHECK(version == CUDA_VERSION);
  const char* text = nullptr;
  REQUIRE(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "CUDA_ERROR_ILLEGAL_ADDRESS");
  REQUIRE(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "out of memory");
  CHECK(cuGetErrorName(static_cast<CUresult>(998), &text) == CUDA_ERROR_INVALID_VALUE);
  CHECK(text == nullptr);
}

TEST_CASE("Before initialisation calls return CUDA_ERROR_NOT_INITIALIZED") {
  int count;
  CHECK(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED);
  CUmodule module;
  CHECK(cuModuleLoadData(&module, ".version 8.0") == CUDA_ERROR_NOT_INITIALIZED);
}

}  // namespace
