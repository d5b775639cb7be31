// Contexts of the driver API: the stack of current contexts, created contexts beside the primary
// one, and the context that a call uses.
#include <chrono>
#include <thread>

#include "check_driver.h"

CUcontext Current() {
  CUcontext context = nullptr;
  CHECK_CU(cuCtxGetCurrent(&context));
  return context;
}

int main() {
  CUdeviceptr memory = 0;
  EXPECT_CU(cuMemAlloc(&memory, 16), CUDA_ERROR_NOT_INITIALIZED);
  CHECK_CU(cuInit(0));
  EXPECT_CU(cuMemAlloc(&memory, 16), CUDA_ERROR_INVALID_CONTEXT);
  int devices = 0;
  CUdevice device = 0, out_of_range = 0;
  CHECK_CU(cuDeviceGetCount(&devices));
  REQUIRE(devices >= 1);
  CHECK_CU(cuDeviceGet(&device, 0));
  EXPECT_CU(cuDeviceGet(&out_of_range, devices), CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(Current() == nullptr);

  // The primary context. There is one, however often it is retained.
  unsigned flags = 0;
  int active = -1;
  CUcontext primary = nullptr, again = nullptr, popped = nullptr;
  CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
  REQUIRE(active == 0);
  CHECK_CU(cuDevicePrimaryCtxRetain(&primary, device));
  CHECK_CU(cuDevicePrimaryCtxRetain(&again, device));
  REQUIRE(primary == again && primary != nullptr);
  CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
  REQUIRE(active == 1);
  REQUIRE(Current() == nullptr);

  // Two created contexts. Creating a context makes it current.
  CUcontext first = nullptr, second = nullptr;
  CHECK_CU(cuCtxCreate(&first, nullptr, 0, device));
  REQUIRE(Current() == first && first != primary);
  CHECK_CU(cuCtxCreate(&second, nullptr, CU_CTX_SCHED_BLOCKING_SYNC, device));
  REQUIRE(Current() == second && second != first);
  CHECK_CU(cuCtxGetFlags(&flags));
  REQUIRE((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
  CHECK_CU(cuCtxPushCurrent(primary));
  REQUIRE(Current() == primary);
  unsigned version = 0;
  CHECK_CU(cuCtxGetApiVersion(primary, &version));
  REQUIRE(version >= 3020);
  unsigned long long primary_id = 0, first_id = 0;
  CHECK_CU(cuCtxGetId(primary, &primary_id));
  CHECK_CU(cuCtxGetId(first, &first_id));
  REQUIRE(primary_id != first_id);
  CHECK_CU(cuCtxPopCurrent(&popped));
  REQUIRE(popped == primary && Current() == second);
  CHECK_CU(cuCtxPopCurrent(&popped));
  REQUIRE(popped == second && Current() == first);
  CUdevice its_device = -1;
  CHECK_CU(cuCtxGetDevice(&its_device));
  REQUIRE(its_device == device);
  CHECK_CU(cuCtxPopCurrent(&popped));
  REQUIRE(popped == first && Current() == nullptr);
  EXPECT_CU(cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);

  // Memory, streams and events of two contexts, used side by side.
  CUdeviceptr pointers[2] = {};
  CUstream streams[2] = {};
  CUcontext contexts[2] = {first, primary};
  for (int i = 0; i < 2; ++i) {
    CHECK_CU(cuCtxSetCurrent(contexts[i]));
    CHECK_CU(cuMemAlloc(&pointers[i], 4096));
    CHECK_CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemsetD32Async(pointers[i], 0x1000 + i, 1024, streams[i]));
    CUcontext owner = nullptr;
    CHECK_CU(cuStreamGetCtx(streams[i], &owner));
    REQUIRE(owner == contexts[i]);
    CHECK_CU(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, pointers[i]));
    REQUIRE(owner == contexts[i]);
  }
  for (int i = 0; i < 2; ++i) {
    CHECK_CU(cuCtxSetCurrent(contexts[i]));
    CHECK_CU(cuCtxSynchronize());
    std::vector<unsigned> got(1024), want(1024, 0x1000 + i);
    CHECK_CU(cuMemcpyDtoH(got.data(), pointers[i], 4096));
    check::Compare("memory", got, want);
  }

  // The current context belongs to the thread.
  std::thread([&] {
    REQUIRE(Current() == nullptr);
    CHECK_CU(cuCtxSetCurrent(first));
    CHECK_CU(cuMemsetD32(pointers[0], 77, 1024));
  }).join();
  REQUIRE(Current() == primary);
  CHECK_CU(cuCtxSetCurrent(first));
  std::vector<unsigned> got(1024);
  CHECK_CU(cuMemcpyDtoH(got.data(), pointers[0], 4096));
  check::Compare("from a thread", got, std::vector<unsigned>(1024, 77));

  // A copy on the default stream waits for the default stream of the context that owns the memory.
  unsigned* flag = nullptr;
  CHECK_CU(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, CU_MEMHOSTALLOC_PORTABLE));
  std::vector<unsigned> back(1024);
  const auto fill_late = [&](unsigned value, auto copy) {
    *static_cast<volatile unsigned*>(flag) = 0;
    CHECK_CU(cuCtxSetCurrent(first));
    CHECK_CU(cuStreamWaitValue32(nullptr, reinterpret_cast<CUdeviceptr>(flag), 1,
                                 CU_STREAM_WAIT_VALUE_EQ));
    CHECK_CU(cuMemsetD32Async(pointers[0], value, 1024, nullptr));
    CHECK_CU(cuCtxSetCurrent(primary));
    std::thread release([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      *static_cast<volatile unsigned*>(flag) = 1;
    });
    copy();
    release.join();
    check::Compare("behind another context", back, std::vector<unsigned>(1024, value));
  };
  fill_late(88, [&] { CHECK_CU(cuMemcpyDtoH(back.data(), pointers[0], 4096)); });
  fill_late(99, [&] {
    CHECK_CU(cuMemcpyDtoD(pointers[1], pointers[0], 4096));
    CHECK_CU(cuMemcpyDtoH(back.data(), pointers[1], 4096));
  });
  fill_late(111, [&] {
    CHECK_CU(cuMemcpyDtoDAsync(pointers[1], pointers[0], 4096, nullptr));
    CHECK_CU(cuMemcpyDtoH(back.data(), pointers[1], 4096));
  });
  CHECK_CU(cuMemFreeHost(flag));

  CHECK_CU(cuCtxSetCurrent(first));
  CHECK_CU(cuStreamDestroy(streams[0]));
  CHECK_CU(cuMemFree(pointers[0]));
  CHECK_CU(cuCtxDestroy(first));
  REQUIRE(Current() == nullptr);
  CHECK_CU(cuCtxDestroy(second));
  CHECK_CU(cuCtxSetCurrent(primary));
  CHECK_CU(cuStreamDestroy(streams[1]));
  CHECK_CU(cuMemFree(pointers[1]));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
  REQUIRE(active == 0);
  return check::Ok();
}
