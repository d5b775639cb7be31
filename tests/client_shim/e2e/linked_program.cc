// A program that is linked with -lcuda against the shim, so it needs libcuda.so.1 before main.
#include <cuda.h>

#include <cstdint>
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

// Triples values with the module's kernel, and ends the program if they are wrong.
void Triple(CUmodule module) {
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
      std::exit(1);
    }
  }
  CHECK(cuMemFree(memory));
}

// Loads, uses and unloads the code as the runtime of CUDA 11 does: through a private table, from the
// wrapper that nvcc puts into programs.
void UseLikeRuntime11() {
  constexpr unsigned char kRuntimeInterface[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
  CUuuid id;
  std::memcpy(id.bytes, kRuntimeInterface, sizeof(id.bytes));
  const void* table = nullptr;
  CHECK(cuGetExportTable(&table, &id));
  const auto* entries = static_cast<void* const*>(table);

  // A fatbin with one entry, which holds the text and is padded (proto/images/fatbin.h).
  struct {
    uint32_t magic = 0xBA55ED50;
    uint16_t version = 1, header_bytes = 16;
    uint64_t entries_bytes;
    uint16_t kind = 1, entry_version = 0x0101;
    uint32_t entry_header_bytes = 64;
    uint64_t payload_bytes;
    uint32_t compressed_bytes = 0, options = 0;
    uint16_t minor = 8, major = 7;
    uint32_t architecture = 75, name_offset = 0, name_bytes = 0;
    uint64_t flags = 0, zero = 0, uncompressed_bytes = 0;
    alignas(8) char text[(sizeof(kPtx) + 7) / 8 * 8] = {};
  } fatbin;
  static_assert(sizeof(fatbin) == 16 + 64 + sizeof(fatbin.text), "no padding");
  fatbin.payload_bytes = sizeof(fatbin.text);
  fatbin.entries_bytes = 64 + sizeof(fatbin.text);
  std::memcpy(fatbin.text, kPtx, sizeof(kPtx));
  const struct {
    uint32_t magic, version;
    const void* fatbin;
    const void* linked;
  } wrapper = {0x466243B1, 1, &fatbin, nullptr};

  using Load = CUresult (*)(CUmodule*, const void*, const char**, void**, uint32_t);
  using Forget = CUresult (*)(const void*);
  CUmodule module = nullptr;
  CHECK(reinterpret_cast<Load>(entries[6])(&module, &wrapper, nullptr, nullptr, 0));
  Triple(module);
  CHECK(reinterpret_cast<Forget>(entries[7])(&wrapper));
  CHECK(cuModuleUnload(module));
}

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
  Triple(module);
  CHECK(cuModuleUnload(module));
  UseLikeRuntime11();
  CHECK(cuDevicePrimaryCtxRelease(device));
  std::printf("ok\n");
  return 0;
}
