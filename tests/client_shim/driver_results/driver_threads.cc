// Threads that use everything at once: copies of ordinary and pinned memory, launches, a shared
// event, host functions, and streams and pinned memory that are made and destroyed. Prints all
// failures, then "ok" or "failed".
#include <cuda.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 6, kRounds = 12;
constexpr unsigned int kCount = 300000;
constexpr char kPtx[] = R"(.version 7.5
.target sm_75
.address_size 64
.visible .entry increment(.param .u64 where, .param .u32 count) {
  .reg .u64 %p, %offset;
  .reg .u32 %value, %i, %n, %block, %thread;
  .reg .pred %outside;
  ld.param.u64 %p, [where];
  ld.param.u32 %n, [count];
  mov.u32 %block, %ctaid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %i, %block, 128, %thread;
  setp.ge.u32 %outside, %i, %n;
  @%outside bra done;
  mul.wide.u32 %offset, %i, 4;
  add.u64 %p, %p, %offset;
  ld.global.u32 %value, [%p];
  add.u32 %value, %value, 1;
  st.global.u32 [%p], %value;
done:
  ret;
}
)";

std::atomic<int> failures{0};

void Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  printf("%s -> %d\n", call, static_cast<int>(result));
  ++failures;
}
#define CHECK(call) Check(call, #call)

void CUDA_CB Count(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

void Work(CUcontext context, CUlibrary library, CUevent shared, int number) {
  CHECK(cuCtxSetCurrent(context));
  CUkernel kernel;
  CUstream stream;
  CUdeviceptr device;
  CUevent event;
  CHECK(cuLibraryGetKernel(&kernel, library, "increment"));
  CHECK(cuStreamCreate(&stream, number % 2));
  CHECK(cuMemAlloc(&device, kCount * 4));
  CHECK(cuEventCreate(&event, 0));
  const std::vector<int> in(kCount, number);
  std::vector<int> out(kCount);
  std::atomic<int> called{0};
  for (int round = 0; round < kRounds; ++round) {
    unsigned int count = kCount;
    void* params[] = {&device, &count};
    CHECK(cuMemcpyHtoDAsync(device, in.data(), kCount * 4, stream));
    CHECK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), (kCount + 127) / 128, 1, 1, 128, 1,
                         1, 0, stream, params, nullptr));
    CHECK(cuEventRecord(event, stream));
    CHECK(cuEventRecord(shared, stream));
    CHECK(cuStreamWaitEvent(stream, shared, 0));
    CHECK(cuLaunchHostFunc(stream, Count, &called));
    for (const CUresult ready : {cuEventQuery(shared), cuStreamQuery(stream)}) {
      if (ready != CUDA_ERROR_NOT_READY) Check(ready, "query");
    }
    CHECK(cuMemcpyDtoHAsync(out.data(), device, kCount * 4, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuEventSynchronize(event));
    for (const int value : out) {
      if (value == number + 1) continue;
      printf("thread %d, round %d: %d instead of %d\n", number, round, value, number + 1);
      ++failures;
      break;
    }
    CHECK(cuCtxSynchronize());
    CUstream other;
    CHECK(cuStreamCreate(&other, 0));
    CHECK(cuMemsetD8Async(device, 0, 100, other));
    CHECK(cuStreamDestroy(other));
    void* pinned = nullptr;
    CHECK(cuMemHostAlloc(&pinned, 8192, 0));
    if (pinned != nullptr) {
      CHECK(cuMemcpyDtoH(pinned, device, 4096));
      CHECK(cuMemFreeHost(pinned));
    }
  }
  if (called != kRounds) {
    printf("thread %d: %d host functions\n", number, called.load());
    ++failures;
  }
  CHECK(cuMemFree(device));
  CHECK(cuEventDestroy(event));
  CHECK(cuStreamDestroy(stream));
}

}  // namespace

int main() {
  CUcontext context;
  CUlibrary library;
  CUevent shared;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(cuEventCreate(&shared, 0));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(Work, context, library, shared, i);
  for (std::thread& thread : threads) thread.join();
  CHECK(cuLibraryUnload(library));
  CHECK(cuDevicePrimaryCtxRelease(0));
  puts(failures == 0 ? "ok" : "failed");
  return failures == 0 ? 0 : 1;
}
