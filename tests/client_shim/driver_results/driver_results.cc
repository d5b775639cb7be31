// Makes many wrong calls of the driver and prints the results. driver_results.expected has the
// results of driver 580 (CUDA 13.0) on an H200. From Outputs() on, the lines are the shim's: they were
// compared by hand with similar calls that tests/gpu/sweep recorded on an H100 or an H200, and the
// program has not run natively since. The shim must print the same.
#include <cuda.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

#define RESULT(call) printf("%s -> %d\n", #call, static_cast<int>(call))

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
CUdeviceptr first, second;  // 1,000 bytes and 1 MiB

void Start() {
  unsigned int flags;
  int active;
  RESULT(cuInit(0));
  RESULT(cuDeviceGet(&device, 0));
  RESULT(cuDevicePrimaryCtxGetState(device, &flags, &active));
  printf("flags %u active %d\n", flags, active);
  RESULT(cuCtxGetDevice(&device));
  RESULT(cuDevicePrimaryCtxRetain(&primary, device));
  RESULT(cuDevicePrimaryCtxGetState(device, &flags, &active));
  printf("flags %u active %d\n", flags, active);
  RESULT(cuCtxSetCurrent(primary));
  RESULT(cuCtxGetFlags(&flags));
  printf("flags %u\n", flags);
}

void Modules() {
  CUfunction none;
  CUdeviceptr address;
  size_t bytes;
  RESULT(cuModuleLoadData(&module, kPtx));
  RESULT(cuModuleGetFunction(&plain, module, "plain"));
  RESULT(cuModuleGetFunction(&two, module, "two"));
  RESULT(cuModuleGetFunction(&small, module, "small"));
  RESULT(cuModuleGetFunction(&paired, module, "paired"));
  RESULT(cuModuleGetFunction(&none, module, "none"));
  RESULT(cuModuleGetGlobal(&address, &bytes, module, "none"));
  RESULT(cuModuleGetGlobal(&address, &bytes, module, "variable"));
  printf("bytes %zu\n", bytes);
}

void Launches() {
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 32, 33, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 128, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 1, 70000, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 2147483648u, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 0, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 32, 1, 1, 60000, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 32, 1, 1, 400000, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(small, 1, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchCooperativeKernel(plain, 100000, 1, 1, 1024, 1, 1, 0, nullptr, nullptr));

  // The parameters are (u64, u32): 12 bytes.
  unsigned long long a = 0;
  unsigned int b = 0;
  char buffer[16] = {};
  size_t size = 12;
  void* params[] = {&a, &b};
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  RESULT(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra));
  RESULT(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  size = 16;
  RESULT(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  size = 8;
  RESULT(cuLaunchKernel(two, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
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
  RESULT(launch(plain, 32, 16, 1, 1));
  RESULT(launch(plain, 32, 32, 1, 1));
  RESULT(launch(plain, 32, 3, 1, 1));
  RESULT(launch(plain, 32, 0, 0, 0));
  RESULT(launch(plain, 32, 0, 1, 1));
  RESULT(launch(plain, 32, 2, 1, 1));
  RESULT(launch(plain, 30, 5, 1, 1));
  RESULT(launch(paired, 32, 4, 1, 1));
  RESULT(launch(paired, 32, 2, 1, 1));
  RESULT(cuLaunchKernel(paired, 3, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(paired, 4, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  attribute.id = static_cast<CUlaunchAttributeID>(77);
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  config.gridDimX = 100000;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  config.gridDimX = 1;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attribute.value.priority = -99;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  RESULT(cuCtxSynchronize());
}

void Memory() {
  const auto host_address = reinterpret_cast<CUdeviceptr>(host);
  RESULT(cuMemAlloc(&first, 1000));
  RESULT(cuMemAlloc(&second, 1 << 20));
  RESULT(cuMemcpyHtoD(first, host, 1000));
  RESULT(cuMemcpyHtoD(first, host, 1001));
  RESULT(cuMemcpyHtoD(second, host, (1 << 20) + 1));
  RESULT(cuMemcpyHtoD(second + 1, host, 1 << 20));
  RESULT(cuMemcpyDtoH(host, host_address, 16));
  RESULT(cuMemcpyHtoD(host_address, host, 16));
  RESULT(cuMemcpyHtoD(second, reinterpret_cast<void*>(first), 16));
  RESULT(cuMemcpyDtoH(reinterpret_cast<void*>(second), first, 16));
  RESULT(cuMemcpyDtoD(second, host_address, 16));
  RESULT(cuMemcpy(second, host_address, 16));
  RESULT(cuMemcpyDtoD(second, 0, 16));
  RESULT(cuMemcpyHtoD(0, host, 16));
  RESULT(cuMemFree(first + 4));
  RESULT(cuMemFree(host_address));
  CUdeviceptr base;
  size_t bytes;
  RESULT(cuMemGetAddressRange(&base, &bytes, first + 8));
  printf("first %d bytes %zu\n", base == first, bytes);
  RESULT(cuMemGetAddressRange(&base, &bytes, host_address));
  RESULT(cuMemsetD32(second + 1, 0, 4));
  RESULT(cuMemsetD16(second + 1, 0, 4));
  RESULT(cuMemsetD8(second, 0, (1 << 20) + 1));
  RESULT(cuMemsetD2D32(second, 10, 0, 4, 4));
  RESULT(cuMemsetD2D8(second, 2, 0, 4, 4));
  RESULT(cuMemsetD8(0, 0, 4));
  RESULT(cuMemsetD8(host_address, 0, 4));
  size_t pitch;
  RESULT(cuMemAllocPitch(&base, &pitch, 100, 10, 4));
  printf("pitch %zu\n", pitch);
  RESULT(cuMemAllocPitch(&base, &pitch, 100, 10, 3));
  RESULT(cuMemAllocPitch(&base, &pitch, 0, 10, 4));
  RESULT(cuMemAlloc(&base, size_t{1} << 50));
}

void HostMemory() {
  char* range = static_cast<char*>(
      mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  unsigned int flags;
  CUdeviceptr address;
  RESULT(cuMemHostRegister(range + 100, 8192, 0));
  RESULT(cuMemHostRegister(range + 100, 8192, 0));
  RESULT(cuMemHostRegister(range + 4096, 100, 0));
  RESULT(cuMemHostRegister(range + 100 + 8192, 100, 0));
  RESULT(cuMemHostRegister(range + 12288 + 4096, 100, 0));
  RESULT(cuMemHostUnregister(range + 101));
  RESULT(cuMemHostUnregister(range));
  RESULT(cuMemHostGetFlags(&flags, range + 100));
  printf("flags %u\n", flags);
  RESULT(cuMemHostGetDevicePointer(&address, range + 200, 0));
  RESULT(cuMemHostGetDevicePointer(&address, range, 0));
  RESULT(cuMemHostGetDevicePointer(&address, host, 0));
  RESULT(cuMemFreeHost(range + 100));
  RESULT(cuMemcpyHtoD(second, range + 100, 8193));
  RESULT(cuMemcpyHtoD(second, range + 100, 8192));
  RESULT(cuMemHostUnregister(range + 100));
  RESULT(cuMemHostUnregister(range + 100));
  RESULT(cuMemHostRegister(nullptr, 100, 0));
  RESULT(cuMemHostRegister(range, 0, 0));
  RESULT(cuMemHostRegister(range, 100, 64));
  void* pinned;
  RESULT(cuMemHostAlloc(&pinned, 1000, CU_MEMHOSTALLOC_PORTABLE));
  RESULT(cuMemHostGetFlags(&flags, pinned));
  printf("flags %u\n", flags);
  RESULT(cuMemAllocHost(&pinned, 1000));
  RESULT(cuMemHostGetFlags(&flags, pinned));
  printf("flags %u\n", flags);
  RESULT(cuMemHostUnregister(pinned));
  RESULT(cuMemHostRegister(pinned, 100, 0));
  RESULT(cuMemFreeHost(static_cast<char*>(pinned) + 4));
  RESULT(cuMemFreeHost(host));
  RESULT(cuMemHostAlloc(&pinned, 0, 0));
  RESULT(cuMemHostAlloc(&pinned, 100, 64));
}

void StreamsAndEvents() {
  CUstream free_stream, stream;
  CUevent event, other, untimed, refused;
  int priority;
  float milliseconds;
  RESULT(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
  RESULT(cuStreamCreate(&stream, 7));
  RESULT(cuStreamCreateWithPriority(&stream, 0, -100));
  RESULT(cuStreamGetPriority(stream, &priority));
  printf("priority %d\n", priority);
  RESULT(cuEventCreate(&event, 0));
  RESULT(cuEventCreate(&other, 0));
  RESULT(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  RESULT(cuEventCreate(&refused, CU_EVENT_INTERPROCESS));
  RESULT(cuEventCreate(&refused, 64));
  RESULT(cuEventElapsedTime(&milliseconds, event, other));
  RESULT(cuEventQuery(event));
  RESULT(cuEventRecord(event, free_stream));
  RESULT(cuEventElapsedTime(&milliseconds, event, other));
  RESULT(cuEventElapsedTime(&milliseconds, event, untimed));
  RESULT(cuStreamWaitEvent(free_stream, event, 1));
  RESULT(cuStreamWaitEvent(free_stream, event, 2));
  RESULT(cuEventRecordWithFlags(event, free_stream, 1));
  RESULT(cuEventRecordWithFlags(event, free_stream, 2));
  RESULT(cuStreamSynchronize(free_stream));
  CUstreamAttrValue value{};
  RESULT(cuStreamGetAttribute(free_stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  value.priority = -2;
  RESULT(cuStreamSetAttribute(free_stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  RESULT(cuStreamGetPriority(free_stream, &priority));
  printf("priority %d\n", priority);
  RESULT(cuStreamDestroy(nullptr));
  RESULT(cuStreamDestroy(CU_STREAM_LEGACY));
  RESULT(cuStreamDestroy(CU_STREAM_PER_THREAD));

  // Two contexts: which objects belong to which context.
  CUcontext made, current;
  unsigned int flags;
  RESULT(cuCtxCreate(&made, nullptr, 0, device));
  RESULT(cuCtxGetCurrent(&current));
  printf("made %d\n", current == made);
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, free_stream, nullptr, nullptr));
  RESULT(cuMemcpyHtoDAsync(second, host, 16, free_stream));
  RESULT(cuEventRecord(event, nullptr));
  RESULT(cuStreamWaitEvent(nullptr, event, 0));
  RESULT(cuCtxPopCurrent(&current));
  RESULT(cuCtxGetCurrent(&current));
  printf("primary %d\n", current == primary);
  RESULT(cuCtxDestroy(primary));
  RESULT(cuCtxDestroy(made));
  RESULT(cuCtxSetFlags(0xFF));
  RESULT(cuDevicePrimaryCtxSetFlags(device, 0xFF));
  RESULT(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
  RESULT(cuCtxGetFlags(&flags));
  printf("flags %u\n", flags);
}

void Settings() {
  size_t limit;
  CUfunc_cache cache;
  CUsharedconfig banks;
  RESULT(cuCtxGetLimit(&limit, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH));
  RESULT(cuCtxGetLimit(&limit, static_cast<CUlimit>(9)));
  RESULT(cuCtxGetLimit(&limit, static_cast<CUlimit>(10)));
  RESULT(cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 100));
  RESULT(cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1));
  RESULT(cuCtxSetLimit(static_cast<CUlimit>(99), 1));
  RESULT(cuCtxGetCacheConfig(&cache));
  printf("cache %d\n", cache);
  RESULT(cuCtxSetCacheConfig(static_cast<CUfunc_cache>(9)));
  RESULT(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
  RESULT(cuCtxGetSharedMemConfig(&banks));
  printf("banks %d\n", banks);
}

void Pools() {
  CUmemoryPool pool;
  CUdeviceptr address;
  cuuint64_t used;
  RESULT(cuDeviceGetDefaultMemPool(&pool, device));
  RESULT(cuMemPoolDestroy(pool));
  RESULT(cuMemAllocAsync(&address, 0, nullptr));
  RESULT(cuMemAllocAsync(&address, 1000, nullptr));
  RESULT(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  printf("used %llu\n", static_cast<unsigned long long>(used));
  RESULT(cuMemFreeAsync(address + 4, nullptr));
  RESULT(cuMemFreeAsync(address, nullptr));
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
  RESULT(cuMemcpy2D(&copy));
  copy.srcPitch = 10;
  RESULT(cuMemcpy2D(&copy));
  copy.srcPitch = copy.dstPitch = 0;
  RESULT(cuMemcpy2D(&copy));
  copy.srcPitch = 10;
  copy.dstPitch = 200;
  RESULT(cuMemcpy2D(&copy));
  copy.Height = 0;
  RESULT(cuMemcpy2D(&copy));
  copy.Height = 1;
  copy.dstMemoryType = static_cast<CUmemorytype>(9);
  RESULT(cuMemcpy2D(&copy));
}

// ---- recorded on an H100, with driver 580

// What wrong calls leave in their outputs.
void Outputs() {
  CUdeviceptr address = 7;
  size_t bytes = 7, pitch = 7;
  void* pinned = host;
  RESULT(cuMemAlloc(&address, 0));
  printf("address %llu\n", address);
  address = 7;
  RESULT(cuMemAlloc(&address, SIZE_MAX));
  printf("address %llu\n", address);
  address = 7;
  RESULT(cuMemAllocPitch(&address, &pitch, 64, 0, 16));
  printf("address %llu pitch %zu\n", address, pitch);
  address = pitch = 7;
  RESULT(cuMemAllocPitch(&address, &pitch, 4, size_t{1} << 62, 8));
  printf("address %llu pitch %zu\n", address, pitch);
  address = pitch = 7;
  RESULT(cuMemAllocPitch(&address, &pitch, size_t{1} << 62, 64, 4));
  printf("address %llu pitch %zu\n", address, pitch);
  RESULT(cuMemHostAlloc(&pinned, 4096, 64));
  printf("pinned %d\n", pinned != nullptr);
  pinned = host;
  RESULT(cuMemAllocHost(&pinned, SIZE_MAX - 4095));
  printf("pinned %d\n", pinned != nullptr);
  address = 7;
  RESULT(cuMemAllocManaged(&address, 64, 8));
  printf("address %llu\n", address);
  address = 7;
  RESULT(cuMemAllocManaged(&address, SIZE_MAX, CU_MEM_ATTACH_HOST));
  printf("address %llu\n", address);
  address = 7;
  RESULT(cuMemHostGetDevicePointer(&address, host, 0));
  printf("address %llu\n", address);
  address = bytes = 7;
  RESULT(cuMemGetAddressRange(&address, &bytes, reinterpret_cast<CUdeviceptr>(host)));
  printf("address %llu bytes %zu\n", address, bytes);
}

void HostFlags() {
  unsigned int flags;
  void* pinned;
  RESULT(cuMemHostAlloc(&pinned, 1000, 0));
  RESULT(cuMemHostGetFlags(&flags, pinned));
  printf("flags %u\n", flags);
  RESULT(cuMemFreeHost(pinned));
  RESULT(cuMemHostAlloc(&pinned, 1000, CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_DEVICEMAP));
  RESULT(cuMemHostGetFlags(&flags, pinned));
  printf("flags %u\n", flags);
  RESULT(cuMemFreeHost(pinned));
  char* range = static_cast<char*>(
      mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const auto range_address = reinterpret_cast<CUdeviceptr>(range);
  RESULT(cuMemHostRegister(range, 4096, CU_MEMHOSTREGISTER_IOMEMORY));
  RESULT(cuMemHostRegister(range, 4096, CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_PORTABLE));
  RESULT(cuMemHostRegister(range + 100, 5000,
                           CU_MEMHOSTREGISTER_READ_ONLY | CU_MEMHOSTREGISTER_PORTABLE));
  RESULT(cuMemHostGetFlags(&flags, range + 100));
  printf("flags %u\n", flags);
  CUdeviceptr base;
  size_t bytes;
  RESULT(cuMemGetAddressRange(&base, &bytes, range_address + 200));
  printf("base %d bytes %zu\n", base == range_address + 100, bytes);
  RESULT(cuMemHostUnregister(range + 100));
}

void Pointers() {
  CUdeviceptr managed, mapped, address = 7;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  CUmemGenericAllocationHandle handle;
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  RESULT(cuMemCreate(&handle, 2 << 20, &properties, 0));
  RESULT(cuMemAddressReserve(&mapped, 2 << 20, 0, 0, 0));
  RESULT(cuMemMap(mapped, 2 << 20, 0, handle, 0));
  RESULT(cuMemSetAccess(mapped, 2 << 20, &access, 1));
  RESULT(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
  void* pinned;
  RESULT(cuMemAllocHost(&pinned, 1000));
  const auto pinned_address = reinterpret_cast<CUdeviceptr>(pinned);

  RESULT(cuMemHostGetDevicePointer(&address, reinterpret_cast<void*>(mapped + 4096), 0));
  printf("mapping %d\n", address == mapped);
  RESULT(cuMemHostGetDevicePointer(&address, reinterpret_cast<void*>(managed), 0));
  printf("address %llu\n", address);
  for (const CUdeviceptr pointer : {first, managed, mapped, pinned_address}) {
    unsigned int sync = 7;
    RESULT(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
    printf("sync %u\n", sync);
    sync = 0;
    RESULT(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
    RESULT(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
    printf("sync %u\n", sync);
    RESULT(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
  }
  unsigned long long tokens[2] = {7, 7};
  RESULT(cuPointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, pinned_address));
  printf("token %llu\n", tokens[0]);

  // Values before the wrong attribute are written, and no value after it.
  CUcontext context = nullptr;
  unsigned int type = 7, ordinal = 7;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      static_cast<CUpointer_attribute>(23), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* data[] = {&context, &type, tokens, &ordinal};
  RESULT(cuPointerGetAttributes(4, attributes, data, first));
  printf("primary %d type %u ordinal %u\n", context == primary, type, ordinal);
  RESULT(cuMemFree(managed));
  RESULT(cuMemFreeHost(pinned));
}

void Advice() {
  constexpr size_t kBytes = 256 << 10;
  CUstream stream;
  CUdeviceptr managed, pooled;
  RESULT(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  RESULT(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  RESULT(cuMemAllocAsync(&pooled, 65536, stream));
  const auto advise = [&](CUdeviceptr address, size_t bytes, int advice, int type, int id) {
    return cuMemAdvise(address, bytes, static_cast<CUmem_advise>(advice),
                       {static_cast<CUmemLocationType>(type), id});
  };
  const auto prefetch = [&](CUdeviceptr address, size_t bytes, int type, int id) {
    return cuMemPrefetchAsync(address, bytes, {static_cast<CUmemLocationType>(type), id}, 0,
                              stream);
  };
  const auto ask = [&](int attribute, CUdeviceptr address, size_t bytes) {
    int value = 7;
    const CUresult result = cuMemRangeGetAttribute(
        &value, sizeof value, static_cast<CUmem_range_attribute>(attribute), address, bytes);
    printf("value %d ", value);
    return result;
  };
  // Types of locations that do not exist, locations of the host, devices that do not exist.
  RESULT(advise(managed, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 100, 0));
  RESULT(advise(managed, 100, CU_MEM_ADVISE_SET_READ_MOSTLY, 5, 0));
  RESULT(advise(managed, 4096, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 5, 0));
  RESULT(advise(managed, 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, 3, 0));
  RESULT(advise(managed, 4096, CU_MEM_ADVISE_UNSET_ACCESSED_BY, 3, 0));
  RESULT(advise(managed, 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, 2, 0));
  RESULT(advise(managed, 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, 1, 64));
  RESULT(prefetch(managed, 4096, 1, -1));
  // Memory of a pool.
  RESULT(advise(pooled, 65536, CU_MEM_ADVISE_SET_READ_MOSTLY, 3, -1));
  RESULT(advise(first, 1000, CU_MEM_ADVISE_SET_ACCESSED_BY, 1, 0));
  // Beyond the allocation. Nothing remembers the node of the calling thread.
  RESULT(advise(managed + 4096, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 4, 0));
  RESULT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, managed + 65536, 131072));
  RESULT(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, managed + 4096, 1 << 20));
  // Whole pages.
  RESULT(advise(managed + 1, 131072, CU_MEM_ADVISE_SET_READ_MOSTLY, 1, 0));
  RESULT(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed + 4096, 131072));
  RESULT(prefetch(managed, 131072, 2, 0));
  RESULT(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, managed, 100));
  RESULT(prefetch(managed, 4096, 3, 0));
  RESULT(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, managed + 1, 1));
  RESULT(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, managed, 131072));
  RESULT(prefetch(managed + 65536, 131072, 4, 1000));
  RESULT(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, managed + 65536, 131072));
  RESULT(cuMemFreeAsync(pooled, stream));
  RESULT(cuStreamSynchronize(stream));
  RESULT(cuMemFree(managed));
  RESULT(cuStreamDestroy(stream));
}

void ContextValues() {
  unsigned int flags;
  CUcontext made, popped;
  RESULT(cuCtxCreate(&made, nullptr, 0, device));
  RESULT(cuCtxGetFlags(&flags));
  printf("flags %u\n", flags);
  RESULT(cuCtxPopCurrent(&popped));
  RESULT(cuCtxDestroy(made));
  RESULT(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_YIELD | CU_CTX_MAP_HOST));
  RESULT(cuDevicePrimaryCtxSetFlags(device, CU_CTX_LMEM_RESIZE_TO_MAX));
  RESULT(cuDevicePrimaryCtxSetFlags(device, 0));
  const auto affinity = [](int type) {
    CUexecAffinityParam parameter{};
    parameter.type = static_cast<CUexecAffinityType>(7);
    const CUresult result = cuCtxGetExecAffinity(&parameter, static_cast<CUexecAffinityType>(type));
    int sms = 0;
    cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    printf("type %d all %d ", static_cast<int>(parameter.type),
           parameter.param.smCount.val == static_cast<unsigned int>(sms));
    return result;
  };
  RESULT(affinity(0));
  RESULT(affinity(1));
  RESULT(affinity(-1));
  size_t limit;
  RESULT(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 0));
  RESULT(cuCtxGetLimit(&limit, CU_LIMIT_PRINTF_FIFO_SIZE));
  printf("limit %zu\n", limit);
  RESULT(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 512));
  RESULT(cuCtxGetLimit(&limit, CU_LIMIT_MALLOC_HEAP_SIZE));
  printf("limit %zu\n", limit);
  RESULT(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 15));
  RESULT(cuCtxGetLimit(&limit, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT));
  printf("limit %zu\n", limit);
}

void Graphs() {
  CUgraph graph, all;
  CUgraphNode empty, fill, none, found = nullptr, memory_node;
  CUgraphExec exec, again;
  RESULT(cuGraphCreate(&graph, 0));
  RESULT(cuGraphAddEmptyNode(&empty, graph, nullptr, 0));
  CUDA_MEMSET_NODE_PARAMS memset_params{};
  memset_params.dst = second;
  memset_params.elementSize = memset_params.width = memset_params.height = 1;
  RESULT(cuGraphAddMemsetNode(&fill, graph, &empty, 1, &memset_params, primary));
  CUstreamBatchMemOpParams operation{};
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
  batch.ctx = primary;
  batch.paramArray = &operation;
  RESULT(cuGraphAddBatchMemOpNode(&none, graph, &empty, 1, &batch));
  found = empty;
  RESULT(cuGraphNodeFindInClone(&found, empty, graph));
  printf("found %d\n", found != nullptr);
  RESULT(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
  cuuint64_t flags = 7;
  RESULT(cuGraphExecGetFlags(exec, &flags));
  printf("flags %llu\n", static_cast<unsigned long long>(flags));
  unsigned int enabled = 7;
  RESULT(cuGraphNodeGetEnabled(exec, empty, &enabled));
  RESULT(cuGraphNodeGetEnabled(exec, none, &enabled));
  printf("enabled %u\n", enabled);
  RESULT(cuGraphNodeGetEnabled(exec, fill, &enabled));
  printf("enabled %u\n", enabled);
  RESULT(cuGraphLaunch(exec, nullptr));
  RESULT(cuCtxSynchronize());
  RESULT(cuGraphExecDestroy(exec));
  CUuserObject object;
  RESULT(cuUserObjectCreate(
      &object, host, [](void*) {}, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  RESULT(cuGraphReleaseUserObject(graph, object, 1));
  RESULT(cuGraphDestroy(graph));

  RESULT(cuGraphCreate(&all, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS memory{};
  memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  memory.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  memory.bytesize = 4096;
  RESULT(cuGraphAddMemAllocNode(&memory_node, all, nullptr, 0, &memory));
  memory.poolProps.location.id = 2;
  RESULT(cuGraphAddMemAllocNode(&memory_node, all, nullptr, 0, &memory));
  memory.poolProps.location.id = 0;
  memory.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  RESULT(cuGraphAddMemAllocNode(&memory_node, all, nullptr, 0, &memory));
  RESULT(cuGraphDestroyNode(memory_node));
  RESULT(cuGraphInstantiate(&exec, all, 0));
  RESULT(cuGraphInstantiate(&again, all, 0));
  RESULT(cuGraphExecDestroy(exec));
  RESULT(cuGraphDestroy(all));

  CUstream stream;
  RESULT(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  all = graph;
  RESULT(cuStreamEndCapture(stream, &all));
  printf("graph %d\n", all != nullptr);
  RESULT(cuStreamDestroy(stream));
}

// Attributes that cuLaunchKernelEx refuses, and in which order.
void LaunchAttributes() {
  CUevent timed, untimed;
  RESULT(cuEventCreate(&timed, 0));
  RESULT(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  CUlaunchAttribute attributes[2] = {};
  CUlaunchConfig config{};
  config.gridDimX = 16;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 64;
  config.attrs = attributes;
  config.numAttrs = 1;
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
  attributes[0].value.preferredClusterDim = {2, 1, 1};
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attributes[0] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attributes[0].value.programmaticEvent.event = timed;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  config.blockDimY = 1025;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  config.blockDimY = 1;
  attributes[0].value.programmaticEvent.event = untimed;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attributes[0].value.programmaticEvent.flags = 1;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attributes[0].value.launchCompletionEvent.flags = 2;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attributes[0] = attributes[1] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.clusterDim = {16, 1, 0};
  attributes[1].id = static_cast<CUlaunchAttributeID>(100);
  config.numAttrs = 2;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  attributes[0].value.clusterDim = {8, 1, 1};
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  config.numAttrs = 1;
  config.gridDimX = 7;
  config.sharedMemBytes = 49153;
  RESULT(cuLaunchKernelEx(&config, plain, nullptr, nullptr));
  RESULT(cuLaunchCooperativeKernel(plain, 1, 1, 1, 32, 1, 1, 49153, nullptr, nullptr));
  RESULT(cuEventDestroy(timed));
  RESULT(cuEventDestroy(untimed));
}

// Divisions that no device can have. sm_resources_test.cc has those that an H200 can have.
void SmResources() {
  CUdevResource whole, groups[2];
  RESULT(cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM));
  const auto split = [&](unsigned int wanted, unsigned int flags, unsigned int least) {
    return cuDevSmResourceSplitByCount(groups, &wanted, &whole, nullptr, flags, least);
  };
  RESULT(split(2, 3, 8));
  RESULT(split(0, 0, 8));
  RESULT(split(2, 0, 100000));
  RESULT(split(2, 4096, 100000));
}

// What the driver looks at first, and what it writes nevertheless.
void Devices() {
  int value = 7;
  size_t bytes = 7;
  unsigned int capability = 7;
  CUatomicOperation operation = CU_ATOMIC_OPERATION_INTEGER_ADD;
  RESULT(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(-1), 99));
  RESULT(cuDeviceTotalMem(&bytes, 99));
  printf("bytes %zu\n", bytes);
  RESULT(cuDeviceGetTexture1DLinearMaxWidth(&bytes, static_cast<CUarray_format>(4), 3, 99));
  RESULT(cuDeviceGetTexture1DLinearMaxWidth(&bytes, CU_AD_FORMAT_FLOAT, 4, 99));
  RESULT(cuDeviceGetP2PAtomicCapabilities(&capability, &operation, 1, device, device));

  unsigned int flags;
  int active;
  RESULT(cuDevicePrimaryCtxSetFlags(device, CU_CTX_LMEM_RESIZE_TO_MAX));
  RESULT(cuCtxGetFlags(&flags));
  printf("flags %u\n", flags);
  RESULT(cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC));
  RESULT(cuDevicePrimaryCtxGetState(device, &flags, &active));
  printf("flags %u active %d\n", flags, active);
  RESULT(cuCtxGetFlags(&flags));
  printf("flags %u\n", flags);
  RESULT(cuDevicePrimaryCtxSetFlags(device, 0));
}

void MemoryOfManyKinds() {
  // Memory of a pool that begins with a small limit.
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.maxSize = 1;
  CUmemoryPool pool;
  CUdeviceptr address = 7;
  RESULT(cuMemPoolCreate(&pool, &properties));
  RESULT(cuMemAllocFromPoolAsync(&address, SIZE_MAX, pool, nullptr));
  printf("address %llu\n", address);
  RESULT(cuMemAllocFromPoolAsync(&address, 4096, pool, nullptr));
  const auto access = [&](int flags) {
    const CUmemAccessDesc one{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              static_cast<CUmemAccess_flags>(flags)};
    return cuMemPoolSetAccess(pool, &one, 1);
  };
  RESULT(access(0));
  RESULT(access(1));
  RESULT(access(2));
  RESULT(access(3));
  RESULT(cuDeviceSetMemPool(99, pool));
  const auto advise = [&](CUmem_advise advice, int type) {
    return cuMemAdvise(address, 4096, advice, {static_cast<CUmemLocationType>(type), 0});
  };
  RESULT(advise(CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 2));
  RESULT(advise(CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 3));
  RESULT(cuMemFreeAsync(address, nullptr));
  RESULT(cuMemPoolDestroy(pool));
  CUmemoryPool none;
  properties.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  RESULT(cuMemPoolCreate(&none, &properties));
  RESULT(cuMemGetMemPool(&none, &properties.location, CU_MEM_ALLOCATION_TYPE_PINNED));

  // Descriptors of a range.
  int file;
  const auto range = [&](CUdeviceptr at, size_t bytes, int type, unsigned long long flags) {
    return cuMemGetHandleForAddressRange(&file, at, bytes, static_cast<CUmemRangeHandleType>(type),
                                         flags);
  };
  RESULT(range(second, 4096, 2, 0));
  RESULT(range(second, 4096, 1, 2));
  RESULT(range(second + 16, 4096, 1, 0));
  RESULT(range(second, 4097, 1, 0));
  RESULT(range(second, 2 << 20, 1, 0));

  // Mapped memory.
  CUmemAllocationProp physical{};
  physical.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical.location = {static_cast<CUmemLocationType>(-1), 0};
  size_t bytes;
  RESULT(cuMemGetAllocationGranularity(&bytes, &physical, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  physical.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  physical.allocFlags.gpuDirectRDMACapable = 1;
  CUmemGenericAllocationHandle handle;
  RESULT(cuMemCreate(&handle, 4 << 20, &physical, 0));
  physical.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUdeviceptr mapped;
  RESULT(cuMemCreate(&handle, 4 << 20, &physical, 0));
  RESULT(cuMemAddressReserve(&mapped, 8 << 20, 0, 0, 0));
  RESULT(cuMemMap(mapped + 4096, 8 << 20, 0, handle, 0));
  RESULT(cuMemMap(mapped, 4 << 20, 0, handle, 0));
  CUmemAccessDesc one{{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  RESULT(cuMemSetAccess(mapped, 4 << 20, &one, 1));
  one = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
  RESULT(cuMemSetAccess(mapped, 4 << 20, &one, 1));
  unsigned long long access_flags = 7;
  for (const int type : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
    const CUmemLocation location{static_cast<CUmemLocationType>(type), 0};
    RESULT(cuMemGetAccess(&access_flags, &location, mapped));
    printf("access %llu\n", access_flags);
  }
  unsigned int flags = 7;
  RESULT(cuMemHostGetFlags(&flags, reinterpret_cast<void*>(mapped)));
  printf("flags %u\n", flags);
  RESULT(cuMemUnmap(mapped, 4 << 20));
  RESULT(cuMemRelease(handle));
  RESULT(cuMemAddressFree(mapped, 8 << 20));

  // What a small allocation is a part of.
  unsigned long long values[2] = {7, 7};
  RESULT(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, first));
  printf("bytes %zu\n", bytes);
  RESULT(cuPointerGetAttribute(values, CU_POINTER_ATTRIBUTE_P2P_TOKENS, first));
  printf("tokens %llu\n", values[0]);

  // Contexts need not be named.
  RESULT(cuMemcpyPeer(second, nullptr, second + 4096, primary, 64));
  RESULT(cuMemcpyPeer(second, reinterpret_cast<CUcontext>(&bytes), second + 4096, primary, 64));
  // The address itself must belong to the memory that is copied.
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = copy.dstDevice = second;
  copy.dstPitch = 4096;
  copy.dstHeight = 16;
  copy.dstZ = 16;
  copy.WidthInBytes = copy.Height = copy.Depth = 1;
  RESULT(cuMemcpy3D(&copy));
  copy.dstZ = 8;
  RESULT(cuMemcpy3D(&copy));

  // No levels mean one.
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = shape.Height = 4;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  CUmipmappedArray mipmap;
  CUarray array;
  RESULT(cuMipmappedArrayCreate(&mipmap, &shape, 0));
  RESULT(cuMipmappedArrayGetLevel(&array, mipmap, 0));
  RESULT(cuMipmappedArrayDestroy(mipmap));
  shape.Flags = CUDA_ARRAY3D_DEPTH_TEXTURE;
  shape.NumChannels = 4;
  RESULT(cuArray3DCreate(&array, &shape));
}

void Libraries() {
  CUmodule made;
  CUlibrary library;
  CUfunction function = plain;
  CUlinkState state;
  CUdeviceptr address = 7;
  size_t bytes = 7;
  const char* text;
  RESULT(cuModuleLoad(&made, ""));
  RESULT(cuModuleLoad(&made, "/"));
  RESULT(cuLibraryLoadFromFile(&library, "/dev/null", nullptr, nullptr, 0, nullptr, nullptr, 0));
  RESULT(cuModuleGetFunction(&function, module, "none"));
  printf("function %d\n", function != nullptr);
  RESULT(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  RESULT(cuLibraryGetGlobal(&address, &bytes, library, "none"));
  RESULT(cuLibraryGetGlobal(&address, &bytes, library, ""));
  RESULT(cuLibraryGetManaged(&address, &bytes, library, "none"));
  printf("address %llu bytes %zu\n", address, bytes);
  RESULT(cuLibraryUnload(library));
  CUjit_option option = CU_JIT_FALLBACK_STRATEGY;
  void* value = nullptr;
  RESULT(cuLinkCreate(1, &option, &value, &state));
  RESULT(cuGetErrorString(CUDA_ERROR_TENSOR_MEMORY_LEAK, &text));
  printf("text %s\n", text);
}

void WithoutContext() {
  CUstream stream;
  void* pinned;
  RESULT(cuStreamCreate(&stream, 0));
  RESULT(cuMemAllocHost(&pinned, 1000));
  RESULT(cuCtxSetCurrent(nullptr));
  CUdeviceptr address = 7;
  size_t free = 7, bytes = 7;
  unsigned int flags = 7;
  RESULT(cuMemGetInfo(&free, &bytes));
  printf("bytes %zu\n", bytes);
  RESULT(cuMemAlloc(&address, 4096));
  printf("address %llu\n", address);
  address = 7;
  RESULT(cuMemAllocAsync(&address, 64, nullptr));
  printf("address %llu\n", address);
  RESULT(cuMemHostGetFlags(&flags, pinned));
  printf("flags %u\n", flags);
  address = 7;
  RESULT(cuMemHostGetDevicePointer(&address, pinned, 0));
  printf("address %llu\n", address);
  address = bytes = 7;
  RESULT(cuMemGetAddressRange(&address, &bytes, first));
  printf("address %llu bytes %zu\n", address, bytes);
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  RESULT(cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, nullptr, nullptr));
  RESULT(cuStreamSynchronize(stream));
  RESULT(cuCtxSetCurrent(primary));
  RESULT(cuMemFreeHost(pinned));
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
  Outputs();
  HostFlags();
  Pointers();
  Advice();
  ContextValues();
  Graphs();
  LaunchAttributes();
  SmResources();
  Devices();
  MemoryOfManyKinds();
  Libraries();
  WithoutContext();
}
