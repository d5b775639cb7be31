// The functions that programs of CUDA 11 and 12 call: what cuGetProcAddress gives for the versions
// before a function changed, called with the arguments and structures of those versions.
#include "check_driver.h"

// ---- declarations as older headers have them

using GetProcAddress11 = CUresult (*)(const char*, void**, int, cuuint64_t);

// CUDA_KERNEL_NODE_PARAMS before 12.0
struct KernelNodeParams11 {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
};

constexpr char kPtx[] = R"(.version 7.0
.target sm_52
.address_size 64
.visible .entry add(.param .u64 p, .param .u32 n)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<4>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r2, [%rd2];
  add.u32 %r3, %r2, %r1;
  st.global.u32 [%rd2], %r3;
  ret;
}
)";

// Gives function `name` as `version` has it. `Function` is its type in that version.
template <typename Function>
Function Get(const char* name, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status;
  CHECK_CU(cuGetProcAddress(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  if (function == nullptr || status != CU_GET_PROC_ADDRESS_SUCCESS)
    check::Fail("the driver has no function", name, __FILE__, __LINE__);
  return reinterpret_cast<Function>(function);
}

namespace {

void Lookup() {
  const auto get = Get<GetProcAddress11>("cuGetProcAddress", 11030);
  void *found = nullptr, *untouched = &found;
  CHECK_CU(get("cuMemAlloc", &found, 11030, 0));
  REQUIRE(found != nullptr);
  EXPECT_CU(get("cuLaunchKernelEx", &untouched, 11030, 0), CUDA_ERROR_NOT_FOUND);
  REQUIRE(untouched == &found);
  std::printf("lookup\n");
}

void Devices(CUdevice device) {
  CUuuid first, second;
  CHECK_CU(Get<CUresult (*)(CUuuid*, CUdevice)>("cuDeviceGetUuid", 9020)(&first, device));
  CHECK_CU(Get<CUresult (*)(CUuuid*, CUdevice)>("cuDeviceGetUuid", 11040)(&second, device));
  REQUIRE(std::memcmp(&first, &second, sizeof(first)) == 0);
  std::printf("devices\n");
}

void Contexts(CUdevice device) {
  CUcontext context = nullptr, popped = nullptr;
  CUdevice got = -1;
  using Create = CUresult (*)(CUcontext*, unsigned, CUdevice);
  CHECK_CU(Get<Create>("cuCtxCreate", 3020)(&context, CU_CTX_SCHED_YIELD, device));
  CHECK_CU(Get<CUresult (*)(CUdevice*)>("cuCtxGetDevice", 12000)(&got));
  REQUIRE(got == device);
  CHECK_CU(Get<CUresult (*)()>("cuCtxSynchronize", 12000)());
  CHECK_CU(Get<CUresult (*)(CUcontext*)>("cuCtxPopCurrent", 11000)(&popped));
  REQUIRE(popped == context);
  CHECK_CU(Get<CUresult (*)(CUcontext)>("cuCtxDestroy", 11000)(context));
  using CreateWithAffinity =
      CUresult (*)(CUcontext*, CUexecAffinityParam*, int, unsigned, CUdevice);
  CHECK_CU(Get<CreateWithAffinity>("cuCtxCreate", 11040)(&context, nullptr, 0, 0, device));
  CHECK_CU(cuCtxDestroy(context));
  std::printf("contexts\n");
}

void Events() {
  CUevent start, end;
  CHECK_CU(cuEventCreate(&start, 0));
  CHECK_CU(cuEventCreate(&end, 0));
  CHECK_CU(cuEventRecord(start, nullptr));
  CHECK_CU(cuEventRecord(end, nullptr));
  CHECK_CU(cuEventSynchronize(end));
  float milliseconds = -1;
  using Elapsed = CUresult (*)(float*, CUevent, CUevent);
  CHECK_CU(Get<Elapsed>("cuEventElapsedTime", 12000)(&milliseconds, start, end));
  REQUIRE(milliseconds >= 0);
  CHECK_CU(cuEventDestroy(start));
  CHECK_CU(cuEventDestroy(end));
  std::printf("events\n");
}

void ManagedMemory(CUdevice device, CUstream stream) {
  CUdeviceptr memory;
  CHECK_CU(cuMemAllocManaged(&memory, 1 << 20, CU_MEM_ATTACH_GLOBAL));
  using Advise = CUresult (*)(CUdeviceptr, size_t, CUmem_advise, CUdevice);
  const auto advise = Get<Advise>("cuMemAdvise", 12000);
  CHECK_CU(advise(memory, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device));
  CHECK_CU(advise(memory, 1 << 20, CU_MEM_ADVISE_SET_READ_MOSTLY, CU_DEVICE_CPU));
  int location = -9;
  CHECK_CU(cuMemRangeGetAttribute(&location, sizeof(location),
                                  CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 1 << 20));
  REQUIRE(location == device);
  CHECK_CU(advise(memory, 1 << 20, CU_MEM_ADVISE_UNSET_READ_MOSTLY, device));
  using Prefetch = CUresult (*)(CUdeviceptr, size_t, CUdevice, CUstream);
  const auto prefetch = Get<Prefetch>("cuMemPrefetchAsync", 12000);
  CHECK_CU(prefetch(memory, 1 << 20, device, stream));
  CHECK_CU(prefetch(memory, 1 << 20, CU_DEVICE_CPU, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuMemFree(memory));
  std::printf("managed memory\n");
}

void Captures(CUstream stream, CUdeviceptr memory) {
  // Before 10.1 a capture had no mode.
  CHECK_CU(Get<CUresult (*)(CUstream)>("cuStreamBeginCapture", 10000)(stream));
  CHECK_CU(cuMemsetD32Async(memory, 1, 1, stream));
  CUstreamCaptureStatus status;
  cuuint64_t id = 0, same = 0;
  using Info10 = CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*);
  CHECK_CU(Get<Info10>("cuStreamGetCaptureInfo", 10010)(stream, &status, &id));
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0);
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  using Info11 = CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                              const CUgraphNode**, size_t*);
  const auto info = Get<Info11>("cuStreamGetCaptureInfo", 11030);
  CHECK_CU(info(stream, &status, &same, &graph, &nodes, &count));
  REQUIRE(same == id && graph != nullptr && count == 1 && nodes != nullptr);
  using Update = CUresult (*)(CUstream, CUgraphNode*, size_t, unsigned);
  CHECK_CU(Get<Update>("cuStreamUpdateCaptureDependencies", 11030)(
      stream, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CHECK_CU(info(stream, &status, nullptr, nullptr, nullptr, &count));
  REQUIRE(count == 0);
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  CHECK_CU(cuGraphDestroy(graph));
  std::printf("captures\n");
}

int Value(CUdeviceptr memory) {
  int value = -1;
  CHECK_CU(cuMemcpyDtoH(&value, memory, sizeof(value)));
  return value;
}

// Streams that do not wait for the default stream also see the value.
void Fill(CUdeviceptr memory, unsigned value) {
  CHECK_CU(cuMemsetD32(memory, value, 1));
  CHECK_CU(cuCtxSynchronize());
}

void Graphs(CUfunction add, CUstream stream, CUdeviceptr memory) {
  int amount = 5;
  void* arguments[] = {&memory, &amount};
  KernelNodeParams11 params = {add, 1, 1, 1, 1, 1, 1, 0, arguments, nullptr};
  CUgraph graph;
  CUgraphNode first, second;
  CHECK_CU(cuGraphCreate(&graph, 0));
  using AddKernel =
      CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const KernelNodeParams11*);
  const auto add_kernel = Get<AddKernel>("cuGraphAddKernelNode", 11080);
  CHECK_CU(add_kernel(&first, graph, nullptr, 0, &params));
  CHECK_CU(add_kernel(&second, graph, nullptr, 0, &params));

  // The older structure ends before kern and ctx, so the words behind it stay as they are.
  struct {
    KernelNodeParams11 params;
    uint64_t behind[4];
  } got;
  std::memset(&got, 0x5a, sizeof(got));
  using GetKernel = CUresult (*)(CUgraphNode, KernelNodeParams11*);
  CHECK_CU(Get<GetKernel>("cuGraphKernelNodeGetParams", 11080)(first, &got.params));
  REQUIRE(got.params.func == add && got.params.gridDimX == 1);
  REQUIRE(*static_cast<int*>(got.params.kernelParams[1]) == 5);
  for (const uint64_t word : got.behind) REQUIRE(word == 0x5a5a5a5a5a5a5a5a);
  amount = 7;
  using SetKernel = CUresult (*)(CUgraphNode, const KernelNodeParams11*);
  CHECK_CU(Get<SetKernel>("cuGraphKernelNodeSetParams", 11080)(second, &params));

  using Link = CUresult (*)(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t);
  CHECK_CU(Get<Link>("cuGraphAddDependencies", 12000)(graph, &first, &second, 1));
  CUgraphNode from = nullptr, to = nullptr;
  size_t count = 1;
  using Edges = CUresult (*)(CUgraph, CUgraphNode*, CUgraphNode*, size_t*);
  CHECK_CU(Get<Edges>("cuGraphGetEdges", 12000)(graph, &from, &to, &count));
  REQUIRE(count == 1 && from == first && to == second);
  using Neighbours = CUresult (*)(CUgraphNode, CUgraphNode*, size_t*);
  CHECK_CU(Get<Neighbours>("cuGraphNodeGetDependencies", 12000)(second, &from, &count));
  REQUIRE(count == 1 && from == first);
  CHECK_CU(Get<Neighbours>("cuGraphNodeGetDependentNodes", 12000)(first, &to, &count));
  REQUIRE(count == 1 && to == second);

  CUgraphExec exec;
  CUgraphNode error_node = nullptr;
  char log[64] = "";
  using Instantiate = CUresult (*)(CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t);
  for (const int version : {10000, 11000}) {
    CHECK_CU(Get<Instantiate>("cuGraphInstantiate", version)(&exec, graph, &error_node, log,
                                                             sizeof(log)));
    Fill(memory, 100);
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    REQUIRE(Value(memory) == 112);
    if (version == 10000) CHECK_CU(cuGraphExecDestroy(exec));
  }
  amount = 1000;
  using SetInExec = CUresult (*)(CUgraphExec, CUgraphNode, const KernelNodeParams11*);
  CHECK_CU(Get<SetInExec>("cuGraphExecKernelNodeSetParams", 11080)(exec, second, &params));
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  REQUIRE(Value(memory) == 1117);

  CUgraphExecUpdateResult update = CU_GRAPH_EXEC_UPDATE_ERROR;
  using Update = CUresult (*)(CUgraphExec, CUgraph, CUgraphNode*, CUgraphExecUpdateResult*);
  const auto update_exec = Get<Update>("cuGraphExecUpdate", 11080);
  CHECK_CU(update_exec(exec, graph, &error_node, &update));
  REQUIRE(update == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  REQUIRE(Value(memory) == 1129);

  CHECK_CU(Get<Link>("cuGraphRemoveDependencies", 12000)(graph, &first, &second, 1));
  EXPECT_CU(update_exec(exec, graph, &error_node, &update), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  REQUIRE(update == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);

  // cuGraphAddNode took no edge data in 12.2.
  CUgraphNodeParams empty = {};
  empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraphNode last;
  using AddNode =
      CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraphNodeParams*);
  CHECK_CU(Get<AddNode>("cuGraphAddNode", 12020)(&last, graph, &second, 1, &empty));
  CHECK_CU(Get<Neighbours>("cuGraphNodeGetDependencies", 12020)(last, &from, &count));
  REQUIRE(count == 1 && from == second);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  std::printf("graphs\n");
}

void Batches(CUstream stream, CUdeviceptr memory) {
  // Before 13.0 a batch told the index of the copy that failed.
  CUdeviceptr to[] = {memory + 64, memory + 128}, from[] = {memory, memory};
  size_t sizes[] = {4, 4}, first_of_attribute = 0, failed = 77;
  CUmemcpyAttributes attributes = {};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  using Batch = CUresult (*)(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                             size_t*, size_t, size_t*, CUstream);
  Fill(memory, 42);
  CHECK_CU(Get<Batch>("cuMemcpyBatchAsync", 12080)(to, from, sizes, 2, &attributes,
                                                   &first_of_attribute, 1, &failed, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  REQUIRE(Value(memory + 64) == 42 && Value(memory + 128) == 42);
  std::printf("batches\n");
}

}  // namespace

int main() {
  const CUdevice device = check::UsePrimaryContext();
  CUstream stream;
  CUdeviceptr memory;
  CUmodule module;
  CUfunction add;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuMemAlloc(&memory, 4096));
  CHECK_CU(cuModuleLoadData(&module, kPtx));
  CHECK_CU(cuModuleGetFunction(&add, module, "add"));
  Lookup();
  Devices(device);
  Contexts(device);
  Events();
  ManagedMemory(device, stream);
  Captures(stream, memory);
  Graphs(add, stream, memory);
  Batches(stream, memory);
  CHECK_CU(cuModuleUnload(module));
  CHECK_CU(cuMemFree(memory));
  CHECK_CU(cuStreamDestroy(stream));
  std::printf("ok\n");
}
