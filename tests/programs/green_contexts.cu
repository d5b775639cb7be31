// Green contexts: SMs are described, divided and joined, kernels run on streams of green contexts,
// and whole contexts wait for events.
#include "check_driver.h"

__global__ void Add(unsigned* values, unsigned amount) {
  values[blockIdx.x * blockDim.x + threadIdx.x] += amount;
}

int main() {
  const CUdevice device = check::UsePrimaryContext();
  CUdevResource whole;
  CHECK_CU(cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM));
  int sms = 0;
  CHECK_CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  REQUIRE(whole.type == CU_DEV_RESOURCE_TYPE_SM && static_cast<int>(whole.sm.smCount) == sms);

  unsigned possible = 0;
  CHECK_CU(cuDevSmResourceSplitByCount(nullptr, &possible, &whole, nullptr, 0, 8));
  REQUIRE(possible >= 2 && static_cast<int>(possible) <= sms / 8);
  CUdevResource groups[2], rest;
  unsigned count = 2;
  CHECK_CU(cuDevSmResourceSplitByCount(groups, &count, &whole, &rest, 0, 8));
  REQUIRE(count == 2);
  std::printf("groups of %u and %u SMs\n", groups[0].sm.smCount, groups[1].sm.smCount);
  REQUIRE(static_cast<int>(rest.sm.smCount) == sms - 16);
  unsigned pairs = 0;
  CHECK_CU(cuDevSmResourceSplitByCount(nullptr, &pairs, &whole, nullptr,
                                       CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 2));
  REQUIRE(static_cast<int>(pairs) == sms / 2);

  CUdevResourceDesc description, joined;
  CHECK_CU(cuDevResourceGenerateDesc(&description, groups, 1));
  CHECK_CU(cuDevResourceGenerateDesc(&joined, groups, 2));
  CUgreenCtx green, both;
  CHECK_CU(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
  CHECK_CU(cuGreenCtxCreate(&both, joined, device, CU_GREEN_CTX_DEFAULT_STREAM));
  CUdevResource got;
  CHECK_CU(cuGreenCtxGetDevResource(both, &got, CU_DEV_RESOURCE_TYPE_SM));
  std::printf("joined: %u SMs\n", got.sm.smCount);
  unsigned long long id, other_id;
  CHECK_CU(cuGreenCtxGetId(green, &id));
  CHECK_CU(cuGreenCtxGetId(both, &other_id));
  REQUIRE(id != other_id);

  // Work on streams of green contexts and of the primary context, ordered by events.
  unsigned* values = check::Zeroed<unsigned>(1024);
  CUstream stream, second;
  CHECK_CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  CHECK_CU(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  CUgreenCtx owner;
  CHECK_CU(cuStreamGetGreenCtx(stream, &owner));
  REQUIRE(owner == green);
  CHECK_CU(cuStreamGetGreenCtx(second, &owner));
  REQUIRE(owner == nullptr);
  CUevent event;
  CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (unsigned i = 1; i <= 10; ++i) {
    Add<<<4, 256, 0, stream>>>(values, i);
    CHECK_CU(cuGreenCtxRecordEvent(green, event));
    CHECK_CU(cuStreamWaitEvent(second, event, 0));
    Add<<<4, 256, 0, second>>>(values, 100 * i);
    CHECK_CU(cuEventRecord(event, second));
    CHECK_CU(cuGreenCtxWaitEvent(green, event));
  }
  CHECK_CU(cuStreamSynchronize(stream));
  check::Compare("ordered", check::Download(values, 1024), std::vector<unsigned>(1024, 5555));

  // The green context as a context.
  CUcontext context, primary, current;
  CHECK_CU(cuCtxGetCurrent(&primary));
  CHECK_CU(cuCtxFromGreenCtx(&context, green));
  REQUIRE(context != primary);
  CHECK_CU(cuCtxPushCurrent(context));
  CHECK_CU(cuCtxGetDevResource(context, &got, CU_DEV_RESOURCE_TYPE_SM));
  std::printf("current: %u SMs\n", got.sm.smCount);
  CUdeviceptr memory;
  CHECK_CU(cuMemAlloc(&memory, 4096));
  CHECK_CU(cuMemsetD32Async(memory, 7, 1024, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuCtxPopCurrent(&current));
  REQUIRE(current == context);
  std::vector<unsigned> sevens(1024);
  CHECK_CU(cuMemcpyDtoH(sevens.data(), memory, 4096));
  check::Compare("memory", sevens, std::vector<unsigned>(1024, 7));

  // A stream that is made after the wait also waits.
  CHECK_CU(cuStreamWaitValue32(second, memory, 8, CU_STREAM_WAIT_VALUE_EQ));
  Add<<<4, 256, 0, second>>>(values, 1);
  CHECK_CU(cuEventRecord(event, second));
  CHECK_CU(cuGreenCtxWaitEvent(both, event));
  CUstream late;
  CHECK_CU(cuGreenCtxStreamCreate(&late, both, CU_STREAM_NON_BLOCKING, 0));
  Add<<<4, 256, 0, late>>>(values, 1000);
  EXPECT_CU(cuStreamQuery(late), CUDA_ERROR_NOT_READY);
  CHECK_CU(cuStreamWriteValue32(stream, memory, 8, 0));
  CHECK_CU(cuStreamSynchronize(late));
  check::Compare("held", check::Download(values, 1024), std::vector<unsigned>(1024, 6556));

  EXPECT_CU(cuGreenCtxCreate(&owner, description, device, 0), CUDA_ERROR_INVALID_VALUE);
  CUstream refused;
  EXPECT_CU(cuGreenCtxStreamCreate(&refused, green, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CUdevResource twice[2] = {groups[0], groups[0]};
  CHECK_CU(cuDevResourceGenerateDesc(&description, twice, 2));

  CHECK_CU(cuEventDestroy(event));
  for (CUstream done : {stream, second, late}) CHECK_CU(cuStreamDestroy(done));
  CHECK_CU(cuMemFree(memory));
  CHECK_CU(cuGreenCtxDestroy(green));
  CHECK_CU(cuGreenCtxDestroy(both));
  CHECK(cudaFree(values));
  return check::Ok();
}
