#include "server/backends/cuda/cuda_images.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "coroutine_runtime/status_cuda.h"
#include "tests/server/backends/cuda/stand_in_session.h"

namespace detshare::cuda {
namespace {

std::atomic<int> g_arrays{0};

// Its card has room for one array.
DriverApi SmallCard() {
  DriverApi api = StandInDriver();
  api.cuArray3DCreate = [](CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR*) {
    if (g_arrays != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    ++g_arrays;
    *array = reinterpret_cast<CUarray>(&g_arrays);
    return CUDA_SUCCESS;
  };
  api.cuArrayDestroy = [](CUarray) {
    --g_arrays;
    return CUDA_SUCCESS;
  };
  api.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
    static StandInStream clearing;
    *stream = reinterpret_cast<CUstream>(&clearing);
    return CUDA_SUCCESS;
  };
  api.cuMemAlloc = [](CUdeviceptr* memory, size_t) {
    *memory = kBase;
    return CUDA_SUCCESS;
  };
  api.cuMemFree = [](CUdeviceptr) { return CUDA_SUCCESS; };
  api.cuMemsetD8Async = [](CUdeviceptr, unsigned char, size_t, CUstream stream) {
    ++StreamOf(stream).in_flight;
    return CUDA_SUCCESS;
  };
  api.cuMemcpy3DAsync = [](const CUDA_MEMCPY3D*, CUstream) { return CUDA_SUCCESS; };
  // Only what clears arrays is waited for.
  api.cuStreamSynchronize = [](CUstream stream) {
    StreamOf(stream).in_flight = 0;
    return CUDA_SUCCESS;
  };
  return api;
}

struct SmallCardSession : StandInSession {
  SmallCardSession() : StandInSession(SmallCard()) { REQUIRE(g_arrays == 0); }
  ~SmallCardSession() {
    for (StandInStream& stream : streams) stream.in_flight = 0;
    while (g_arrays != 0) std::this_thread::yield();
  }

  absl::StatusOr<std::unique_ptr<Array>> Create() {
    return images.CreateArray(*space, {.width = 64,
                                       .height = 64,
                                       .format = static_cast<uint32_t>(TexelFormat::kF32),
                                       .channels = 1});
  }
  CudaImages images{context, reclaimer};
};

TEST_CASE_METHOD(SmallCardSession, "What accounts for an array is kept until its memory is free") {
  auto array = Create();
  REQUIRE(array.ok());
  auto charge = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = charge;
  (*array)->KeepUntilFree(std::move(charge));
  REQUIRE(Submit(0).ok());
  array->reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(g_arrays == 1);
  CHECK_FALSE(kept.expired());
  streams[0].in_flight = 0;
  while (!kept.expired()) std::this_thread::yield();
  CHECK(g_arrays == 0);
}

TEST_CASE_METHOD(SmallCardSession, "An array gets the memory of one that waits to be freed") {
  auto first = Create();
  REQUIRE(first.ok());
  REQUIRE(Submit(0).ok());
  first->reset();
  std::thread ends([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    streams[0].in_flight = 0;
  });
  const auto second = Create();
  ends.join();
  CHECK(second.ok());
  CHECK(g_arrays == 1);
}

TEST_CASE_METHOD(SmallCardSession, "An array that a full card has no room for is refused") {
  auto first = Create();
  REQUIRE(first.ok());
  SECTION("at once, if no array waits to be freed") {
    CHECK(CudaResultOf(Create().status()) == kCudaErrorOutOfMemory);
  }
  SECTION("soon, if the work that delays this does not end") {
    REQUIRE(Submit(0).ok());
    first->reset();
    CHECK(CudaResultOf(Create().status()) == kCudaErrorOutOfMemory);
    CHECK(g_arrays == 1);
  }
}

}  // namespace
}  // namespace detshare::cuda
