// What the driver says of itself, of devices and of their multiprocessors.
#include "tests/gpu/sweep/sweep.h"

namespace sweep {
namespace {

// Where a device is, and which: this is the machine's, not the driver's.
bool IsMachineState(int attribute) {
  return attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ||
         attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID ||
         attribute == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID ||
         attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
}

void AskAttribute(int attribute, int device) {
  Out<int> value("value", IsMachineState(attribute) ? Shown::kHidden : Shown::kValue);
  CALL(cuDeviceGetAttribute, value.MaybeNull(), attribute, device);
}

void AskName(int length) {
  char name[256];
  std::memset(name, 0, sizeof name);
  CALL(cuDeviceGetName, As(name, "name"), length, AnyDevice());
  Note("name: " + Show(static_cast<const char*>(name)));
}

void AskProperties() {
  const int device = AnyDevice();
  switch (numbers.Below(9)) {
    case 0: {
      Out<CUdevprop> properties("properties");
      CALL(cuDeviceGetProperties, properties, device);
      break;
    }
    case 1: {
      Out<int> major("major"), minor("minor");
      CALL(cuDeviceComputeCapability, major, minor, device);
      break;
    }
    case 2: {
      Out<std::size_t> bytes("bytes");
      CALL(cuDeviceTotalMem, bytes.MaybeNull(), device);
      break;
    }
    case 3: {
      Out<CUdevice> found("device");
      CALL(cuDeviceGet, found.MaybeNull(), device);
      break;
    }
    case 4: {
      Out<int> supported("supported");
      CALL(cuDeviceGetExecAffinitySupport, supported.MaybeNull(),
           numbers.Mostly<int>({0, 1}, {-1, 2, 100}), device);
      break;
    }
    case 5: {
      char uuid[16] = {};
      CALL(cuDeviceGetUuid, As(reinterpret_cast<CUuuid*>(uuid), "uuid"), device);
      break;
    }
    case 6: {
      char bus[64] = {};
      const int length = numbers.Mostly<int>({13, 20, 64}, {0, 1, 12}, 30);
      CALL(cuDeviceGetPCIBusId, As(bus, "bus"), length, device);
      Note(Format("characters: %zu", strnlen(bus, sizeof bus)));
      break;
    }
    case 7: {
      Out<CUdevice> found("device");
      CALL(cuDeviceGetByPCIBusId, found,
           numbers.Pick<const char*>({"", "0", "garbage", "ffff:ff:1f.0", "zz:00.0", "0000:ff"}));
      break;
    }
    default: {
      Out<CUmemoryPool> pool("pool");
      if (numbers.Chance(50)) {
        CALL(cuDeviceGetDefaultMemPool, pool.MaybeNull(), device);
      } else {
        CALL(cuDeviceGetMemPool, pool.MaybeNull(), device);
      }
    }
  }
}

void AskPeers() {
  const int from = AnyDevice(), to = AnyDevice();
  Out<int> value("value");
  switch (numbers.Below(4)) {
    case 0:
      CALL(cuDeviceCanAccessPeer, value.MaybeNull(), from, to);
      break;
    case 1: {
      unsigned capabilities[2] = {77, 77};
      const CUatomicOperation operations[2] = {static_cast<CUatomicOperation>(numbers.Below(14)),
                                               static_cast<CUatomicOperation>(numbers.Below(14))};
      CALL(cuDeviceGetP2PAtomicCapabilities, As(capabilities, "capabilities"),
           As(operations, Format("{%d,%d}", operations[0], operations[1])),
           static_cast<unsigned>(numbers.Mostly<int>({1, 2}, {0})), from, to);
      Note(Format("capabilities: %u %u", capabilities[0], capabilities[1]));
      break;
    }
    default:
      CALL(cuDeviceGetP2PAttribute, value.MaybeNull(),
           numbers.Mostly<int>({1, 2, 3, 4, 5}, {0, 6, -1}), from, to);
  }
}

void AskTextureWidth() {
  Out<std::size_t> width("width");
  const int format = numbers.Mostly<int>({1, 2, 3, 8, 9, 10, 16, 32}, {0, 4, 0xb0, 0xc0, 0x91, -1});
  CALL(cuDeviceGetTexture1DLinearMaxWidth, width.MaybeNull(), format,
       numbers.Mostly<unsigned>({1, 2, 4}, {0, 3, 5, UINT32_MAX}), AnyDevice());
}

// Two context limits can be changed only before the first kernel; huge stacks really take memory.
void ContextLimit() {
  const int limit = numbers.Mostly<int>({0, 1, 2, 3, 4, 5, 6}, {7, 8, 100, -1});
  std::size_t value = numbers.Mostly<std::size_t>(
      {0, 1, 15, 16, 100, 128, 512, 1000, 1024, 1040, 4096}, {1ull << 40, SIZE_MAX, 1ull << 45});
  if (numbers.Chance(60)) CALL(cuCtxSetLimit, limit, value);
  Out<std::size_t> now("limit");
  CALL(cuCtxGetLimit, now.MaybeNull(), limit);
}

void ContextSettings() {
  switch (numbers.Below(12)) {
    case 0:
      CALL(cuCtxSetCacheConfig, numbers.Mostly<int>({0, 1, 2, 3}, {4, -1, 100}));
      break;
    case 1: {
      Out<CUfunc_cache> config("config");
      CALL(cuCtxGetCacheConfig, config.MaybeNull());
      break;
    }
    case 2:
      CALL(cuCtxSetSharedMemConfig, numbers.Mostly<int>({0, 1, 2}, {3, -1}));
      break;
    case 3: {
      Out<CUsharedconfig> config("config");
      CALL(cuCtxGetSharedMemConfig, config.MaybeNull());
      break;
    }
    case 4:
      CALL(cuCtxSetFlags, AnyFlags(0x1f));
      break;
    case 5: {
      Out<unsigned> flags("flags");
      CALL(cuCtxGetFlags, flags.MaybeNull());
      break;
    }
    case 6: {
      Out<unsigned> version("version");
      CALL(cuCtxGetApiVersion, numbers.Pick<CUcontext>({fix.context, nullptr}), version);
      break;
    }
    case 7: {
      Out<int> least("least"), greatest("greatest");
      CALL(cuCtxGetStreamPriorityRange, least.MaybeNull(), greatest.MaybeNull());
      break;
    }
    case 8: {
      Out<unsigned long long> id("id", Shown::kHidden);
      CALL(cuCtxGetId, numbers.Pick<CUcontext>({fix.context, nullptr}), id.MaybeNull());
      break;
    }
    case 9: {
      Out<CUexecAffinityParam> affinity("affinity");
      CALL(cuCtxGetExecAffinity, affinity, numbers.Mostly<int>({0}, {1, -1}));
      break;
    }
    case 10: {
      Out<CUdevice> device("device");
      CALL(cuCtxGetDevice_v2, device, numbers.Pick<CUcontext>({fix.context, nullptr}));
      CALL(cuCtxSynchronize_v2, numbers.Pick<CUcontext>({fix.context, nullptr}));
      break;
    }
    default:
      CALL(cuCtxResetPersistingL2Cache);
  }
}

void PrimaryContext() {
  const int device = AnyDevice();
  Out<unsigned> flags("flags");
  Out<int> active("active");
  CALL(cuDevicePrimaryCtxSetFlags, device, AnyFlags(0x1f));
  CALL(cuDevicePrimaryCtxGetState, device, flags, active);
  Out<CUcontext> context("context");
  if (CALL(cuDevicePrimaryCtxRetain, context, device) == CUDA_SUCCESS)
    CALL(cuDevicePrimaryCtxRelease, device);
}

void ContextEvents() {
  const CUcontext context = numbers.Mostly<CUcontext>({fix.context}, {nullptr});
  if (numbers.Chance(50)) {
    CALL(cuCtxRecordEvent, context, AnyEvent());
  } else {
    CALL(cuCtxWaitEvent, context, AnyEvent());
  }
}

void ContextStack() {
  Out<CUcontext> top("context"), current("context");
  CALL(cuCtxPushCurrent, numbers.Mostly<CUcontext>({fix.context}, {nullptr}));
  CALL(cuCtxGetCurrent, current.MaybeNull());
  CALL(cuCtxPopCurrent, top.MaybeNull());
  Out<CUcontext> again("context");
  CALL(cuCtxGetCurrent, again);
  cuCtxSetCurrent(fix.context);
}

// These two flags leave files behind.
constexpr unsigned kCoredumps = CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE;

void OwnContext() {
  Out<CUcontext> made("context");
  CUctxCreateParams parameters{};
  const bool with_parameters = numbers.Chance(30);
  CALL(cuCtxCreate, made,
       with_parameters ? As(&parameters, "{}") : As<CUctxCreateParams*>(nullptr, "null"),
       AnyFlags(0x1f) & ~kCoredumps, AnyDevice());
  const CUcontext context = made.Or(nullptr);
  if (context != nullptr) {
    NameHandle(context, "own");
    Out<unsigned> flags("flags"), version("version");
    Out<CUcontext> current("context"), popped("context");
    CALL(cuCtxGetFlags, flags);
    CALL(cuCtxGetApiVersion, context, version);
    CALL(cuCtxGetCurrent, current);
    Out<int> least("least"), greatest("greatest");
    CALL(cuCtxGetStreamPriorityRange, least, greatest);
    Out<std::size_t> limit("limit");
    CALL(cuCtxGetLimit, limit, CU_LIMIT_STACK_SIZE);
    Out<CUdeviceptr> memory("memory");
    CALL(cuMemAlloc, memory, 4096);
    // Memory of another context, with this one current.
    CALL(cuMemsetD8, At(fix.device_memory, 0), 1, 16);
    CALL(cuMemcpyDtoD, At(fix.device_memory, 0), As(memory.Or(0), "own memory"), 16);
    CALL(cuLaunchKernel, As(fix.nothing, "nothing"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
         nullptr);
    CALL(cuStreamQuery, As(fix.stream, "stream"));
    CALL(cuEventRecord, As(fix.event, "event"), nullptr);
    CALL(cuCtxPopCurrent, popped);
    if (numbers.Chance(50)) cuCtxSetCurrent(context);
    CALL(cuCtxDestroy, context);
    CALL(cuCtxGetCurrent, popped);
    NameHandle(context, nullptr);
  }
  cuCtxSetCurrent(fix.context);
}

void AttachContext() {
  Out<CUcontext> context("context");
  if (CALL(cuCtxAttach, context, numbers.Mostly<unsigned>({0}, {1, 8})) == CUDA_SUCCESS)
    CALL(cuCtxDetach, fix.context);
  cuCtxSetCurrent(fix.context);
}

// Waits for the work of earlier rounds, so that a query has one result.
void Settle() {
  cuStreamSynchronize(fix.stream);
  cuStreamSynchronize(fix.blocking);
  cuEventSynchronize(fix.event);
  cuEventSynchronize(fix.untimed);
}

// One call of many kinds, to see what they say where no context is current.
void CallAnything() {
  Out<CUdeviceptr> memory("memory");
  Out<std::size_t> size("size");
  Out<int> number("number");
  Out<unsigned> flags("flags");
  switch (numbers.Below(28)) {
    case 0:
      CALL(cuMemAlloc, memory, AnySize(kMiB));
      if (memory.Or(0) != 0) cuMemFree(memory.value);
      break;
    case 1:
      CALL(cuMemFree, As<CUdeviceptr>(0, "null"));
      break;
    case 2:
      CALL(cuMemcpyDtoD, AnyPointer(), At(fix.device_memory, 0), 16);
      break;
    case 3:
      CALL(cuMemcpyHtoD, At(fix.device_memory, 0), At(fix.host, 0), 16);
      break;
    case 4:
      CALL(cuMemsetD8, At(fix.device_memory, 0), 1, AnySize(64));
      break;
    case 5:
      CALL(cuMemGetInfo, Out<std::size_t>("free", Shown::kHidden), size);
      break;
    case 6:
      CALL(cuMemGetAddressRange, memory, size, At(fix.device_memory, 4));
      break;
    case 7:
      CALL(cuPointerGetAttribute, number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, AnyPointer());
      break;
    case 8:
      CALL(cuMemHostGetFlags, flags, At(fix.pinned, 0));
      break;
    case 9:
      CALL(cuMemHostGetDevicePointer, memory, At(fix.pinned, 0), 0);
      break;
    case 10: {
      // A failed call leaves a handle that means nothing.
      CUstream stream = nullptr;
      if (CALL(cuStreamCreate, As(&stream, "&made"), 0) == CUDA_SUCCESS) cuStreamDestroy(stream);
      break;
    }
    case 11:
      Settle();
      CALL(cuStreamQuery, AnyStream());
      break;
    case 12:
      CALL(cuStreamSynchronize, AnyStream());
      break;
    case 13: {
      Out<CUevent> event("made");
      CALL(cuEventCreate, event, 0);
      if (event.Or(nullptr) != nullptr) cuEventDestroy(event.value);
      break;
    }
    case 14:
      CALL(cuEventRecord, AnyEvent(), AnyStream());
      break;
    case 15:
      Settle();
      CALL(cuEventQuery, AnyEvent());
      break;
    case 16:
      CALL(cuLaunchKernel, As(fix.nothing, "nothing"), 1, 1, 1, 1, 1, 1, 0, AnyStream(), nullptr,
           nullptr);
      break;
    case 17:
      CALL(cuFuncGetAttribute, number, static_cast<int>(numbers.Below(16)), AnyFunction());
      break;
    case 18:
      CALL(cuModuleGetGlobal, memory, size, fix.module, "counter");
      break;
    case 19: {
      Out<CUmodule> module("made");
      CALL(cuModuleLoadData, module, As(kPtx, "ptx"));
      if (module.Or(nullptr) != nullptr) cuModuleUnload(module.value);
      break;
    }
    case 20:
      CALL(cuCtxSynchronize);
      break;
    case 21:
      CALL(cuCtxGetDevice, number);
      break;
    case 22:
      CALL(cuCtxGetFlags, flags);
      break;
    case 23:
      CALL(cuCtxGetLimit, size, 0);
      break;
    case 24:
      CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, number, AnyFunction(), 64, 0);
      break;
    case 25: {
      Out<CUgraph> graph("made");
      CALL(cuGraphCreate, graph, 0);
      if (graph.Or(nullptr) != nullptr) cuGraphDestroy(graph.value);
      break;
    }
    case 26:
      CALL(cuMemAllocAsync, memory, 64, AnyStream());
      if (memory.Or(0) != 0) cuMemFree(memory.value);
      break;
    default: {
      CUDA_ARRAY_DESCRIPTOR descriptor{4, 4, CU_AD_FORMAT_FLOAT, 1};
      Out<CUarray> array("made");
      CALL(cuArrayCreate, array, Ref(descriptor));
      if (array.Or(nullptr) != nullptr) cuArrayDestroy(array.value);
    }
  }
}

const char* const kNames[] = {"cuMemAlloc",
                              "cuMemFree",
                              "cuMemcpyHtoD",
                              "cuMemcpyDtoH_v2",
                              "cuMemAlloc_v2",
                              "cuCtxCreate",
                              "cuLaunchKernel",
                              "cuLaunchKernelEx",
                              "cuStreamCreate",
                              "cuStreamGetCaptureInfo",
                              "cuGraphInstantiate",
                              "cuGetProcAddress",
                              "cuGetProcAddress_v2",
                              "cuInit",
                              "cuMemcpy2D",
                              "cuEventElapsedTime",
                              "cuGraphAddNode",
                              "cuGraphExecUpdate",
                              "cuMemPrefetchAsync",
                              "cuMemcpyBatchAsync",
                              "cuStreamWaitValue32",
                              "cuStreamBeginCapture",
                              "cuDeviceGetUuid",
                              "cuTensorMapEncodeTiled",
                              "cuGreenCtxCreate",
                              "cuDevSmResourceSplit",
                              "cuMemAdvise",
                              "cuCoredumpGetAttribute",
                              "cuLogsCurrent",
                              "cuKernelGetName",
                              "cuFuncGetName",
                              "cuMulticastCreate",
                              "cuGLGetDevices",
                              "cuVDPAUGetDevice",
                              "cuEGLInit",
                              "cuProfilerStart",
                              "cuGraphicsMapResources",
                              "cuLibraryLoadData",
                              "cuCtxDestroy",
                              "cuCtxPushCurrent",
                              "cuDeviceTotalMem",
                              "cuMemGetInfo",
                              "cuIpcOpenMemHandle",
                              "cuMemHostRegister",
                              "cuDevicePrimaryCtxReset",
                              "cuStreamBatchMemOp",
                              "cuArrayCreate",
                              "cuTexRefSetAddress2D",
                              "cuThreadExchangeStreamCaptureMode",
                              "cuMemcpyHtoDAsync_v2_ptsz",
                              "cuMemsetD8_v2_ptds",
                              "cuMemcpy_ptds",
                              "cuCheckpointProcessLock",
                              "cuMemBatchDecompressAsync",
                              "cuGetExportTable",
                              "cuCtxGetDevice",
                              "cuStreamGetDevice",
                              "cuEventRecordWithFlags",
                              "cuD3D11GetDevice",
                              "",
                              "cu",
                              "cuNothing",
                              "cumemalloc",
                              "cudaMalloc",
                              "cuMemAlloc ",
                              "cuMemAlloc_v3",
                              "cuMemAlloc_v"};

void AskEntry() {
  Out<void*> function("function", Shown::kHidden);
  Out<CUdriverProcAddressQueryResult> status("status");
  const char* const name = kNames[numbers.Below(sizeof kNames / sizeof kNames[0])];
  const int version = numbers.Mostly<int>(
      {13000, 12000, 11030, 11000, 12080, 12050, 11040, 10000, 7050, 3020, 2000, 4000},
      {0, -1, 1, 99999, INT32_MAX}, 12);
  status.null = numbers.Chance(10);
  CALL(cuGetProcAddress, name, function, version,
       numbers.Mostly<unsigned>({0, 1, 2}, {3, 4, UINT32_MAX}), status);
}

}  // namespace

void Devices() {
  for (int attribute = 0; attribute <= 160; ++attribute) AskAttribute(attribute, 0);
  while (NextRound(150)) {
    switch (numbers.Below(5)) {
      case 0:
        AskAttribute(numbers.Mostly<int>({1, 2, 16, 39, 75}, {0, -1, 1000, INT32_MAX}),
                     AnyDevice());
        break;
      case 1:
        AskPeers();
        break;
      case 2:
        AskTextureWidth();
        break;
      default:
        AskProperties();
    }
  }
  // The driver writes in front of a name of length 0.
  for (const int length : {1, 2, 5, 64, 256}) AskName(length);
  Out<int> version("version"), count("count");
  CALL(cuDriverGetVersion, version);
  CALL(cuDeviceGetCount, count);
  for (const unsigned flags : {0u, 1u, 2u, UINT32_MAX}) CALL(cuInit, flags);
}

void Contexts() {
  while (NextRound(200)) {
    switch (numbers.Below(10)) {
      case 0:
      case 1:
        ContextLimit();
        break;
      case 2:
        PrimaryContext();
        break;
      case 3:
        ContextEvents();
        break;
      case 4:
        ContextStack();
        break;
      case 5:
        AttachContext();
        break;
      default:
        ContextSettings();
    }
    // A context is expensive.
    if (numbers.Below(20) == 0) OwnContext();
  }
}

void WithoutContext() {
  cuCtxSetCurrent(nullptr);
  while (NextRound(250)) {
    CallAnything();
    // Some calls make a context current, such as a launch into a stream.
    Out<CUcontext> current("context");
    CALL(cuCtxGetCurrent, current);
    cuCtxSetCurrent(nullptr);
  }
  Out<CUcontext> popped("context");
  CALL(cuCtxPopCurrent, popped);
  cuCtxSetCurrent(fix.context);
}

void Errors() {
  const auto ask = [](int error) {
    Out<const char*> name("name"), text("text");
    CALL(cuGetErrorName, error, name);
    CALL(cuGetErrorString, error, text);
  };
  for (int error = -5; error <= 1100; ++error) {
    // Between the known ranges one number of ten is enough.
    if (error < 120 || (error >= 200 && error < 230) || (error >= 300 && error < 310) ||
        (error >= 400 && error < 410) || (error >= 500 && error < 510) ||
        (error >= 600 && error < 610) || (error >= 700 && error < 730) ||
        (error >= 800 && error < 820) || (error >= 900 && error < 920) || error >= 995 ||
        error % 10 == 0)
      ask(error);
  }
  for (const int error : {INT32_MAX, INT32_MIN}) ask(error);
}

void Entries() {
  while (NextRound(400)) {
    AskEntry();
  }
}

void Resources() {
  while (NextRound(60)) {
    Out<CUdevResource> whole("resource"), other("resource");
    CALL(cuDeviceGetDevResource, AnyDevice(), whole, numbers.Mostly<int>({1}, {0, 2, -1, 100}));
    CALL(cuCtxGetDevResource, numbers.Mostly<CUcontext>({fix.context}, {nullptr}), other,
         numbers.Mostly<int>({1}, {0, 2, -1}));
    CUdevResource input{};
    cuDeviceGetDevResource(fix.device, &input, CU_DEV_RESOURCE_TYPE_SM);
    CUdevResource groups[16];
    std::memset(static_cast<void*>(groups), kPattern, sizeof groups);
    Out<unsigned> count("count");
    count.value = numbers.Mostly<unsigned>({1, 2, 3, 8, 16}, {0}, 15);
    Out<CUdevResource> remaining("remaining");
    remaining.null = numbers.Chance(20);
    const bool only_count = numbers.Chance(15);
    Note(Format("groups wanted: %u", count.value));
    const CUresult split = CALL(
        cuDevSmResourceSplitByCount,
        only_count ? As<CUdevResource*>(nullptr, "null") : As(groups, "groups"), count, Ref(input),
        remaining, AnyFlags(3),
        numbers.Mostly<unsigned>({1, 2, 7, 8, 9, 16, 32, 64}, {0, 132, 133, 1000, UINT32_MAX}));
    if (only_count || split != CUDA_SUCCESS || count.value == 0 || count.value > 16) continue;
    for (unsigned i = 0; i < count.value; ++i) Note("group: " + Show(groups[i]));
    Out<CUdevResourceDesc> description("description");
    CALL(cuDevResourceGenerateDesc, description, As(groups, "groups"),
         numbers.Mostly<unsigned>({1, count.value}, {1}));
    Out<CUgreenCtx> green("green");
    if (description.Or(nullptr) == nullptr) continue;
    CALL(cuGreenCtxCreate, green, description.value, AnyDevice(),
         numbers.Mostly<unsigned>({1}, {0, 2, 3}));
    const CUgreenCtx made = green.Or(nullptr);
    if (made == nullptr) continue;
    Out<CUdevResource> own("resource");
    CALL(cuGreenCtxGetDevResource, made, own, numbers.Mostly<int>({1}, {0, 2}));
    Out<CUcontext> context("context");
    CALL(cuCtxFromGreenCtx, context, made);
    CUstream stream = nullptr;
    const CUresult streamed =
        CALL(cuGreenCtxStreamCreate, As(&stream, "&stream"), made,
             numbers.Mostly<unsigned>({1}, {0, 2, 3}), numbers.Mostly<int>({0, -1}, {-5, 5, 100}));
    // A failed call leaves a handle that means nothing.
    if (streamed == CUDA_SUCCESS) {
      Out<CUgreenCtx> of_stream("green");
      CALL(cuStreamGetGreenCtx, stream, of_stream);
      Out<int> priority("priority");
      CALL(cuStreamGetPriority, stream, priority);
      CALL(cuLaunchKernel, As(fix.nothing, "nothing"), 4, 1, 1, 32, 1, 1, 0, stream, nullptr,
           nullptr);
      CALL(cuGreenCtxRecordEvent, made, AnyEvent());
      CALL(cuGreenCtxWaitEvent, made, AnyEvent());
      CALL(cuStreamSynchronize, stream);
      CALL(cuStreamDestroy, stream);
    }
    CALL(cuGreenCtxDestroy, made);
  }
  cuCtxSetCurrent(fix.context);
}

}  // namespace sweep
