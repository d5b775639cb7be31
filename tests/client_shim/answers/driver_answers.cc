// Asks the driver many questions that have wrong answers, and prints what it says.
// driver_answers.expected is what driver 580 (CUDA 13.0) says on an H200; the shim has to say the
// same.
#include <cuda.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

#define ANSWER(call) printf("%s -> %d\n", #call, static_cast<int>(call))

constexpr char kPtx[] = R"(.version 8.0
.target sm_90
.address_size 64
.global .align 4 .b8 variable[64];
.visible .entry plain() { ret; }
.visible .entry two(.param .u64 a, .param .u32 b) { ret; }
.visible .entry small() .maxntid 64,1,1 { ret; }
.visible .entry paired() .reqnctapercluster 2,1,1 { ret; }
)";

CUdevice device;
CUcontext primary;
CUmodule module;
CUfunction plain, two, small, paired;
char host[1 << 20];
CUdeviceptr first, second;  // of 1,000 bytes and 1 MiB

void Start() {
  unsigned int flags;
  int active;
  ANSWER(cuInit(0));
  ANSWER(cuDeviceGet(&device, 0));
  ANSWER(cuDevicePrimaryCtxGetState(device, &flags, &active));
  printf("flags %u active %d\n", flags, active);
  ANSWER(cuCtxGetDevice(&device));
  ANSWER(cuDevicePrimaryCtxRetain(&primary, device));
  ANSWER(cuDevicePrimaryCtxGetState(device, &flags, &active));
  printf("flags %u active %d\n", flags, active);
  ANSWER(cuCtxSetCurrent(primary));
  ANSWER(cuCtxGetFlags(&flags));
  printf("flags %u\n", flags);
}

void Modules() {
  CUfunction none;
  CUdeviceptr address;
  size_t bytes;
  ANSWER(cuModuleLoadData(&module, kPtx));
  ANSWER(cuModuleGetFunction(&plain, module, "plain"));
  ANSWER(cuModuleGetFunction(&two, module, "two"));
  ANSWER(cuModuleGetFunction(&small, module, "small"));
  ANSWER(cuModuleGetFunction(&paired, module, "paired"));
  ANSWER(cuModuleGetFunction(&none, module, "none"));
  ANSWER(cuModuleGetGlobal(&address, &bytes, module, "none"));
  ANSWER(cuModuleGetGlobal(&address, &bytes, module, "variable"));
  printf("bytes %zu\n", bytes);
}

void Launches() {
  ANSWER(cuLaunchKernel(plain, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(plain, 1, 1, 1, 32, 33, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 128, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(plain, 1, 70000, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(plain, 2147483648u, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(plain, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(plain, 1, 1, 1, 0, 1, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(plain, 1, 1, 1, 32, 1, 1, 60000, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(plain, 1, 1, 1, 32, 1, 1, 400000, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(small, 1, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchCooperativeKernel(plain, 100000, 1, 1, 1024, 1, 1, 0, nullptr, nullptr));

  // (u64, u32): 12 bytes.
  unsigned long long a = 0;
  unsigned int b = 0;
  char buffer[16] = {};
  size_t size = 12;
  void* params[] = {&a, &b};
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  ANSWER(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra));
  ANSWER(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  size = 16;
  ANSWER(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  size = 8;
  ANSWER(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
}

void Clusters() {
  CUlaunchAttribute attribute{};
  CUlaunchConfig config{};
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.attrs = &attribute;
  config.numAttrs = 1;
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  const auto launch = [&](CUfunction function, unsigned int grid, unsigned int x, unsigned int y,
                          unsigned int z) {
    config.gridDimX = grid;
    attribute.value.clusterDim.x = x;
    attribute.value.clusterDim.y = y;
    attribute.value.clusterDim.z = z;
    return cuLaunchKernelEx(&config, function, nullptr, nullptr);
  };
  ANSWER(launch(plain, 32, 16, 1, 1));
  ANSWER(launch(plain, 32, 32, 1, 1));
  ANSWER(launch(plain, 32, 3, 1, 1));
  ANSWER(launch(plain, 32, 0, 0, 0));
  ANSWER(launch(plain, 32, 0, 1, 1));
  ANSWER(launch(plain, 32, 2, 1, 1));
  ANSWER(launch(plain, 30, 5, 1, 1));
  ANSWER(launch(paired, 32, 4, 1, 1));
  ANSWER(launch(paired, 32, 2, 1, 1));
  ANSWER(cuLaunchKernel(paired, 3, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(paired, 4, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  attribute.id = static_cast<CUlaunchAttributeID>(77);
  ANSWER(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  config.gridDimX = 100000;
  ANSWER(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  config.gridDimX = 1;
  ANSWER(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attribute.value.priority = -99;
  ANSWER(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  ANSWER(cuCtxSynchronize());
}

void Memory() {
  const auto host_address = reinterpret_cast<CUdeviceptr>(host);
  ANSWER(cuMemAlloc(&first, 1000));
  ANSWER(cuMemAlloc(&second, 1 << 20));
  ANSWER(cuMemcpyHtoD(first, host, 1000));
  ANSWER(cuMemcpyHtoD(first, host, 1001));
  ANSWER(cuMemcpyHtoD(second, host, (1 << 20) + 1));
  ANSWER(cuMemcpyHtoD(second + 1, host, 1 << 20));
  ANSWER(cuMemcpyDtoH(host, host_address, 16));
  ANSWER(cuMemcpyHtoD(host_address, host, 16));
  ANSWER(cuMemcpyHtoD(second, reinterpret_cast<void*>(first), 16));
  ANSWER(cuMemcpyDtoH(reinterpret_cast<void*>(second), first, 16));
  ANSWER(cuMemcpyDtoD(second, host_address, 16));
  ANSWER(cuMemcpy(second, host_address, 16));
  ANSWER(cuMemcpyDtoD(second, 0, 16));
  ANSWER(cuMemcpyHtoD(0, host, 16));
  ANSWER(cuMemFree(first + 4));
  ANSWER(cuMemFree(host_address));
  CUdeviceptr base;
  size_t bytes;
  ANSWER(cuMemGetAddressRange(&base, &bytes, first + 8));
  printf("first %d bytes %zu\n", base == first, bytes);
  ANSWER(cuMemGetAddressRange(&base, &bytes, host_address));
  ANSWER(cuMemsetD32(second + 1, 0, 4));
  ANSWER(cuMemsetD16(second + 1, 0, 4));
  ANSWER(cuMemsetD8(second, 0, (1 << 20) + 1));
  ANSWER(cuMemsetD2D32(second, 10, 0, 4, 4));
  ANSWER(cuMemsetD2D8(second, 2, 0, 4, 4));
  ANSWER(cuMemsetD8(0, 0, 4));
  ANSWER(cuMemsetD8(host_address, 0, 4));
  size_t pitch;
  ANSWER(cuMemAllocPitch(&base, &pitch, 100, 10, 4));
  printf("pitch %zu\n", pitch);
  ANSWER(cuMemAllocPitch(&base, &pitch, 100, 10, 3));
  ANSWER(cuMemAllocPitch(&base, &pitch, 0, 10, 4));
  ANSWER(cuMemAlloc(&base, size_t{1} << 50));
}

void HostMemory() {
  char* range = static_cast<char*>(
      mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  unsigned int flags;
  CUdeviceptr address;
  ANSWER(cuMemHostRegister(range + 100, 8192, 0));
  ANSWER(cuMemHostRegister(range + 100, 8192, 0));
  ANSWER(cuMemHostRegister(range + 4096, 100, 0));
  ANSWER(cuMemHostRegister(range + 100 + 8192, 100, 0));
  ANSWER(cuMemHostRegister(range + 12288 + 4096, 100, 0));
  ANSWER(cuMemHostUnregister(range + 101));
  ANSWER(cuMemHostUnregister(range));
  ANSWER(cuMemHostGetFlags(&flags, range + 100));
  printf("flags %u\n", flags);
  ANSWER(cuMemHostGetDevicePointer(&address, range + 200, 0));
  ANSWER(cuMemHostGetDevicePointer(&address, range, 0));
  ANSWER(cuMemHostGetDevicePointer(&address, host, 0));
  ANSWER(cuMemFreeHost(range + 100));
  ANSWER(cuMemcpyHtoD(second, range + 100, 8193));
  ANSWER(cuMemcpyHtoD(second, range + 100, 8192));
  ANSWER(cuMemHostUnregister(range + 100));
  ANSWER(cuMemHostUnregister(range + 100));
  ANSWER(cuMemHostRegister(nullptr, 100, 0));
  ANSWER(cuMemHostRegister(range, 0, 0));
  ANSWER(cuMemHostRegister(range, 100, 64));
  void* pinned;
  ANSWER(cuMemHostAlloc(&pinned, 1000, CU_MEMHOSTALLOC_PORTABLE));
  ANSWER(cuMemHostGetFlags(&flags, pinned));
  printf("flags %u\n", flags);
  ANSWER(cuMemAllocHost(&pinned, 1000));
  ANSWER(cuMemHostGetFlags(&flags, pinned));
  printf("flags %u\n", flags);
  ANSWER(cuMemHostUnregister(pinned));
  ANSWER(cuMemHostRegister(pinned, 100, 0));
  ANSWER(cuMemFreeHost(static_cast<char*>(pinned) + 4));
  ANSWER(cuMemFreeHost(host));
  ANSWER(cuMemHostAlloc(&pinned, 0, 0));
  ANSWER(cuMemHostAlloc(&pinned, 100, 64));
}

void StreamsAndEvents() {
  CUstream free_stream, stream;
  CUevent event, other, untimed, refused;
  int priority;
  float milliseconds;
  ANSWER(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
  ANSWER(cuStreamCreate(&stream, 7));
  ANSWER(cuStreamCreateWithPriority(&stream, 0, -100));
  ANSWER(cuStreamGetPriority(stream, &priority));
  printf("priority %d\n", priority);
  ANSWER(cuEventCreate(&event, 0));
  ANSWER(cuEventCreate(&other, 0));
  ANSWER(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  ANSWER(cuEventCreate(&refused, CU_EVENT_INTERPROCESS));
  ANSWER(cuEventCreate(&refused, 64));
  ANSWER(cuEventElapsedTime(&milliseconds, event, other));
  ANSWER(cuEventQuery(event));
  ANSWER(cuEventRecord(event, free_stream));
  ANSWER(cuEventElapsedTime(&milliseconds, event, other));
  ANSWER(cuEventElapsedTime(&milliseconds, event, untimed));
  ANSWER(cuStreamWaitEvent(free_stream, event, 1));
  ANSWER(cuStreamWaitEvent(free_stream, event, 2));
  ANSWER(cuEventRecordWithFlags(event, free_stream, 1));
  ANSWER(cuEventRecordWithFlags(event, free_stream, 2));
  ANSWER(cuStreamSynchronize(free_stream));
  CUstreamAttrValue value{};
  ANSWER(cuStreamGetAttribute(free_stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  value.priority = -2;
  ANSWER(cuStreamSetAttribute(free_stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  ANSWER(cuStreamGetPriority(free_stream, &priority));
  printf("priority %d\n", priority);
  ANSWER(cuStreamDestroy(nullptr));
  ANSWER(cuStreamDestroy(CU_STREAM_LEGACY));
  ANSWER(cuStreamDestroy(CU_STREAM_PER_THREAD));

  // Two contexts: what belongs to which.
  CUcontext made, current;
  unsigned int flags;
  ANSWER(cuCtxCreate(&made, nullptr, 0, device));
  ANSWER(cuCtxGetCurrent(&current));
  printf("made %d\n", current == made);
  ANSWER(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  ANSWER(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, free_stream, nullptr, nullptr));
  ANSWER(cuMemcpyHtoDAsync(second, host, 16, free_stream));
  ANSWER(cuEventRecord(event, nullptr));
  ANSWER(cuStreamWaitEvent(nullptr, event, 0));
  ANSWER(cuCtxPopCurrent(&current));
  ANSWER(cuCtxGetCurrent(&current));
  printf("primary %d\n", current == primary);
  ANSWER(cuCtxDestroy(primary));
  ANSWER(cuCtxDestroy(made));
  ANSWER(cuCtxSetFlags(0xFF));
  ANSWER(cuDevicePrimaryCtxSetFlags(device, 0xFF));
  ANSWER(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
  ANSWER(cuCtxGetFlags(&flags));
  printf("flags %u\n", flags);
}

void Settings() {
  size_t limit;
  CUfunc_cache cache;
  CUsharedconfig banks;
  ANSWER(cuCtxGetLimit(&limit, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH));
  ANSWER(cuCtxGetLimit(&limit, static_cast<CUlimit>(9)));
  ANSWER(cuCtxGetLimit(&limit, static_cast<CUlimit>(10)));
  ANSWER(cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 100));
  ANSWER(cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1));
  ANSWER(cuCtxSetLimit(static_cast<CUlimit>(99), 1));
  ANSWER(cuCtxGetCacheConfig(&cache));
  printf("cache %d\n", cache);
  ANSWER(cuCtxSetCacheConfig(static_cast<CUfunc_cache>(9)));
  ANSWER(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
  ANSWER(cuCtxGetSharedMemConfig(&banks));
  printf("banks %d\n", banks);
}

void Pools() {
  CUmemoryPool pool;
  CUdeviceptr address;
  cuuint64_t used;
  ANSWER(cuDeviceGetDefaultMemPool(&pool, device));
  ANSWER(cuMemPoolDestroy(pool));
  ANSWER(cuMemAllocAsync(&address, 0, nullptr));
  ANSWER(cuMemAllocAsync(&address, 1000, nullptr));
  ANSWER(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  printf("used %llu\n", static_cast<unsigned long long>(used));
  ANSWER(cuMemFreeAsync(address + 4, nullptr));
  ANSWER(cuMemFreeAsync(address, nullptr));
}

void Copies2D() {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = first;
  copy.WidthInBytes = copy.Height = 10;
  copy.srcPitch = 5;
  copy.dstPitch = 10;
  ANSWER(cuMemcpy2D(&copy));
  copy.srcPitch = 10;
  ANSWER(cuMemcpy2D(&copy));
  copy.srcPitch = copy.dstPitch = 0;
  ANSWER(cuMemcpy2D(&copy));
  copy.srcPitch = 10;
  copy.dstPitch = 200;
  ANSWER(cuMemcpy2D(&copy));
  copy.Height = 0;
  ANSWER(cuMemcpy2D(&copy));
  copy.Height = 1;
  copy.dstMemoryType = static_cast<CUmemorytype>(9);
  ANSWER(cuMemcpy2D(&copy));
}

}  // namespace

int main() {
  Start();
  Modules();
  Launches();
  Clusters();
  Memory();
  HostMemory();
  StreamsAndEvents();
  Settings();
  Pools();
  Copies2D();
}
