// A program that is linked with -lcuda against the shim, so it needs libcuda.so.1 before main.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr char kPtx[] = R"(
.version 7.5
.target sm_75
.address_size 64
.visible .entry triple(.param .u64 where, .param .u32 count) {
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [where];
  ld.param.u32 %r0, [count];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p, %r4, %r0;
  @%p bra done;
  cvta.to.global.u64 %rd1, %rd0;
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [%rd3];
  mul.lo.s32 %r5, %r5, 3;
  st.global.u32 [%rd3], %r5;
done:
  ret;
}
)";

void Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::printf("%s: %s\n", call, name != nullptr ? name : "?");
  std::exit(3);
}
#define CHECK(call) Check(call, #call)

}  // namespace

int main() {
  CHECK(cuInit(0));
  CUdevice device;
  CHECK(cuDeviceGet(&device, 0));
  CUcontext context;
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CUmodule module;
  CHECK(cuModuleLoadData(&module, kPtx));
  CUfunction function;
  CHECK(cuModuleGetFunction(&function, module, "triple"));
  constexpr unsigned int kCount = 1000;
  std::vector<unsigned int> values(kCount);
  for (unsigned int i = 0; i < kCount; ++i) values[i] = i;
  CUdeviceptr memory;
  CHECK(cuMemAlloc(&memory, kCount * 4));
  CHECK(cuMemcpyHtoD(memory, values.data(), kCount * 4));
  unsigned int count = kCount;
  void* params[] = {&memory, &count};
  CHECK(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, params, nullptr));
  CHECK(cuMemcpyDtoH(values.data(), memory, kCount * 4));
  for (unsigned int i = 0; i < kCount; ++i) {
    if (values[i] != 3 * i) {
      std::printf("value %u is %u\n", i, values[i]);
      return 1;
    }
  }
  CHECK(cuMemFree(memory));
  CHECK(cuModuleUnload(module));
  CHECK(cuDevicePrimaryCtxRelease(device));
  std::printf("ok\n");
  return 0;
}
