// Limits of a context that sessions share, on a stand-in for the driver.
#include "server/backends/cuda/context_limit.h"

#include <catch2/catch.hpp>

namespace detshare::cuda {
namespace {

constexpr uint64_t kMiB = 1 << 20, kMemory = 1024 * kMiB;

// The driver's functions take no object, so its state is global.
struct StandIn {
  size_t value = 8 * kMiB;
  bool in_use = false;  // a kernel has used the heap
  int sets = 0;
};
StandIn* g_driver = nullptr;

struct Fixture {
  Fixture() {
    g_driver = &driver;
    api.cuCtxGetLimit = [](size_t* value, CUlimit) {
      *value = g_driver->value;
      return CUDA_SUCCESS;
    };
    api.cuCtxSetLimit = [](CUlimit, size_t value) {
      ++g_driver->sets;
      if (g_driver->in_use) return CUDA_ERROR_INVALID_VALUE;
      if (value > kMemory) return CUDA_ERROR_OUT_OF_MEMORY;
      g_driver->value = (value + kMiB - 1) / kMiB * kMiB;
      return CUDA_SUCCESS;
    };
  }
  CUresult Raise(CUlimit limit, uint64_t value) {
    return RaiseLimit(api, limit, value, kMemory, &in_force);
  }

  StandIn driver;
  DriverApi api{};
  uint64_t in_force = 0;
};

TEST_CASE("A limit of a context grows, and never shrinks") {
  Fixture f;
  CHECK(f.Raise(CU_LIMIT_MALLOC_HEAP_SIZE, 32 * kMiB - 1) == CUDA_SUCCESS);
  CHECK(f.in_force == 32 * kMiB - 1);
  CHECK(f.Raise(CU_LIMIT_MALLOC_HEAP_SIZE, 16 * kMiB) == CUDA_SUCCESS);
  CHECK(f.in_force == 32 * kMiB);
  CHECK(f.driver.sets == 1);
  CHECK(f.Raise(CU_LIMIT_MALLOC_HEAP_SIZE, 2 * kMemory) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("A session may ask for a larger heap when another session has used the heap") {
  Fixture f;
  f.driver.in_use = true;
  for (const CUlimit limit : {CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE}) {
    CHECK(f.Raise(limit, 64 * kMiB) == CUDA_SUCCESS);
    CHECK(f.in_force == 8 * kMiB);
    CHECK(f.Raise(limit, 2 * kMemory) == CUDA_ERROR_INVALID_VALUE);
  }
}

TEST_CASE("Other limits that the driver refuses stay errors") {
  Fixture f;
  f.driver.in_use = true;
  CHECK(f.Raise(CU_LIMIT_STACK_SIZE, 64 * kMiB) == CUDA_ERROR_INVALID_VALUE);
  f.api.cuCtxGetLimit = [](size_t*, CUlimit) { return CUDA_ERROR_UNSUPPORTED_LIMIT; };
  CHECK(f.Raise(CU_LIMIT_CIG_ENABLED, 1) == CUDA_ERROR_UNSUPPORTED_LIMIT);
}

}  // namespace
}  // namespace detshare::cuda
