// The memory, streams and kernels that all families use, and the pools of values.
#include "tests/gpu/sweep/sweep.h"

namespace sweep {

// Kernels that hurt nobody. `store` writes one word, and only where its pointer is set.
const char kPtx[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter;
.visible .global .align 8 .b8 table[1000];
.visible .const .align 4 .u32 constant = 7;
.visible .entry nothing()
{
  ret;
}
.visible .entry store(.param .u64 out, .param .u32 value)
{
  .reg .pred %p;
  .reg .u32 %v;
  .reg .u64 %a;
  ld.param.u64 %a, [out];
  ld.param.u32 %v, [value];
  setp.eq.u64 %p, %a, 0;
  @%p bra end;
  cvta.to.global.u64 %a, %a;
  st.global.u32 [%a], %v;
end:
  ret;
}
.visible .entry many(.param .u8 a, .param .u16 b, .param .align 8 .b8 c[24], .param .u64 d,
                     .param .f32 e)
{
  ret;
}
.visible .entry with_shared(.param .u64 out)
.maxntid 256, 1, 1
{
  .shared .align 4 .b8 buffer[4096];
  .reg .pred %p;
  .reg .u32 %t, %s, %v;
  .reg .u64 %a;
  ld.param.u64 %a, [out];
  setp.eq.u64 %p, %a, 0;
  @%p bra end;
  mov.u32 %t, %tid.x;
  mov.u32 %s, buffer;
  mad.lo.u32 %s, %t, 4, %s;
  st.shared.u32 [%s], %t;
  bar.sync 0;
  mov.u32 %s, buffer;
  ld.shared.u32 %v, [%s];
  cvta.to.global.u64 %a, %a;
  st.global.u32 [%a], %v;
end:
  ret;
}
)";

namespace {

// Says which fixture is missing. The families go on without it.
void Expect(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) Note(std::string("fixture ") + what + ": " + ErrorName(result));
}

void MapMemory() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, fix.device};
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  Region& mapped = fix.mapped;
  Expect(cuMemCreate(&handle, mapped.size, &properties, 0), "cuMemCreate");
  Expect(cuMemAddressReserve(&mapped.base, mapped.size, 0, 0, 0), "cuMemAddressReserve");
  Expect(cuMemMap(mapped.base, mapped.size, 0, handle, 0), "cuMemMap");
  Expect(cuMemSetAccess(mapped.base, mapped.size, &access, 1), "cuMemSetAccess");
  Expect(cuMemRelease(handle), "cuMemRelease");
}

}  // namespace

void MakeFixtures() {
  Expect(cuInit(0), "cuInit");
  Expect(cuDeviceGet(&fix.device, 0), "cuDeviceGet");
  Expect(cuDevicePrimaryCtxRetain(&fix.context, fix.device), "cuDevicePrimaryCtxRetain");
  Expect(cuCtxSetCurrent(fix.context), "cuCtxSetCurrent");
  Expect(cuMemAlloc(&fix.device_memory.base, fix.device_memory.size), "cuMemAlloc");
  Expect(cuMemAlloc(&fix.second.base, fix.second.size), "cuMemAlloc");
  void* pinned = nullptr;
  Expect(cuMemHostAlloc(&pinned, fix.pinned.size,
                        CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE),
         "cuMemHostAlloc");
  fix.pinned.base = reinterpret_cast<CUdeviceptr>(pinned);
  Expect(cuMemAllocManaged(&fix.managed.base, fix.managed.size, CU_MEM_ATTACH_GLOBAL),
         "cuMemAllocManaged");
  void* registered = std::aligned_alloc(64 * kKiB, fix.registered.size);
  std::memset(registered, 3, fix.registered.size);
  fix.registered.base = reinterpret_cast<CUdeviceptr>(registered);
  Expect(cuMemHostRegister(registered, fix.registered.size, CU_MEMHOSTREGISTER_DEVICEMAP),
         "cuMemHostRegister");
  void* host = std::aligned_alloc(64 * kKiB, fix.host.size);
  std::memset(host, 5, fix.host.size);
  fix.host.base = reinterpret_cast<CUdeviceptr>(host);
  Expect(cuStreamCreate(&fix.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  Expect(cuStreamCreate(&fix.blocking, CU_STREAM_DEFAULT), "cuStreamCreate");
  Expect(cuEventCreate(&fix.event, CU_EVENT_DEFAULT), "cuEventCreate");
  Expect(cuEventCreate(&fix.untimed, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  Expect(cuMemAllocAsync(&fix.pooled.base, fix.pooled.size, fix.stream), "cuMemAllocAsync");
  MapMemory();
  Expect(cuModuleLoadData(&fix.module, kPtx), "cuModuleLoadData");
  Expect(cuModuleGetFunction(&fix.nothing, fix.module, "nothing"), "cuModuleGetFunction");
  Expect(cuModuleGetFunction(&fix.store, fix.module, "store"), "cuModuleGetFunction");
  Expect(cuModuleGetFunction(&fix.many, fix.module, "many"), "cuModuleGetFunction");
  Expect(cuModuleGetFunction(&fix.with_shared, fix.module, "with_shared"), "cuModuleGetFunction");
  for (const Region* region : {&fix.device_memory, &fix.second, &fix.pinned, &fix.managed,
                               &fix.registered, &fix.pooled, &fix.mapped, &fix.host})
    AddRegion(*region);
  NameHandle(fix.context, "ctx");
  NameHandle(fix.stream, "stream");
  NameHandle(fix.blocking, "blocking");
  NameHandle(fix.event, "event");
  NameHandle(fix.untimed, "untimed");
  NameHandle(fix.module, "module");
  NameHandle(fix.nothing, "nothing");
  NameHandle(fix.store, "store");
  NameHandle(fix.many, "many");
  NameHandle(fix.with_shared, "with_shared");
  NameHandle(CU_STREAM_LEGACY, "legacy");
  NameHandle(CU_STREAM_PER_THREAD, "per_thread");
  Expect(cuEventRecord(fix.event, fix.stream), "cuEventRecord");
  Expect(cuCtxSynchronize(), "cuCtxSynchronize");
}

// Never behind the end: what lies there differs from run to run.
Named<CUdeviceptr> Somewhere(const Region& region) {
  const auto size = static_cast<std::int64_t>(region.size);
  const std::int64_t inner = static_cast<std::int64_t>(numbers.Below(region.size / 16)) * 4;
  return At(region, numbers.Mostly<std::int64_t>({0, 0, 4, 16, 256, 4096, inner, size / 2},
                                                 {1, 3, size - 1, size - 4}, 20));
}

Named<CUdeviceptr> AnyPointer() {
  const Region* region = numbers.Pick<const Region*>(
      {&fix.device_memory, &fix.device_memory, &fix.second, &fix.pinned, &fix.managed,
       &fix.registered, &fix.pooled, &fix.mapped, &fix.host});
  const Named<CUdeviceptr> place = Somewhere(*region);
  const std::uint64_t number = numbers.Below(40);
  if (number == 0) return {0, "null"};
  if (number == 1) return {1, "0x1"};
  if (number == 2) return {~0ull, "~0"};
  return place;
}

Named<CUstream> AnyStream() {
  const CUstream stream = numbers.Pick<CUstream>(
      {nullptr, fix.stream, fix.stream, fix.blocking, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD});
  return {stream, Show(static_cast<const void*>(stream))};
}

Named<CUevent> AnyEvent() {
  const CUevent event = numbers.Mostly<CUevent>({fix.event, fix.untimed}, {nullptr}, 5);
  return {event, Show(static_cast<const void*>(event))};
}

std::size_t AnySize(std::size_t normal) {
  const std::size_t inner = numbers.Below(normal + 1);
  return numbers.Mostly<std::size_t>(
      {normal, inner, inner & ~std::size_t{63}, normal / 2, 1, 4, 64, 4096 % (normal + 1)},
      {0, normal + 1, normal - 1, std::size_t{1} << 40, std::size_t{1} << 62, SIZE_MAX,
       SIZE_MAX - 4095},
      18);
}

unsigned AnyFlags(unsigned known) {
  const unsigned flags = static_cast<unsigned>(numbers.Next()) & known;
  const unsigned bit = 1u << numbers.Below(32);
  return numbers.Mostly<unsigned>({flags, 0, known & (known - 1)},
                                  {bit, flags | bit, known + 1, UINT32_MAX}, 25);
}

int AnyDevice() {
  return numbers.Mostly<int>({0}, {1, -1, 2, 63, 64, 1000, INT32_MAX, INT32_MIN}, 10);
}

Named<CUfunction> AnyFunction() {
  const CUfunction function =
      numbers.Pick<CUfunction>({fix.nothing, fix.store, fix.many, fix.with_shared});
  return {function, Show(static_cast<const void*>(function))};
}

CUmemLocation AnyLocation() {
  const int type = numbers.Mostly<int>({1, 1, 2, 3}, {0, 4, 5, -1, 100}, 15);
  return {static_cast<CUmemLocationType>(type), AnyDevice()};
}

std::uint64_t AnyNumber() {
  const std::uint64_t any = numbers.Next();
  return numbers.Pick<std::uint64_t>({0, 1, 2, 3, any % 64, any % 4096, any, 31, 32, 1024, 1025,
                                      65535, 65536, INT32_MAX, UINT32_MAX, 1ull << 31, 1ull << 32,
                                      1ull << 40, UINT64_MAX});
}

void Settle() {
  const CUresult result = cuCtxSynchronize();
  if (result != CUDA_SUCCESS) Note("cuCtxSynchronize: " + ErrorName(result));
}

}  // namespace sweep
