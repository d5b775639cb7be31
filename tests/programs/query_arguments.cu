// Queries with random and wrong arguments: occupancy, graph memory, pointers to memory that is gone.
// Checks what CUDA's documentation says of the results.
#include <algorithm>
#include <climits>
#include <set>

#include "check_driver.h"

namespace {

__global__ void Plain(int* out) { out[threadIdx.x] = 1; }

constexpr unsigned kKnownFlags = CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE;
constexpr std::size_t kMiB = 1 << 20;

check::Random numbers(77);

// Small, large and impossible numbers in equal parts.
std::uint64_t Any() {
  static const std::uint64_t kEdges[] = {0,        1,          31,         32,        1024,
                                         1025,     65535,      65536,      INT_MAX,   UINT_MAX,
                                         1u << 31, 1ull << 32, 1ull << 40, UINT64_MAX};
  const std::uint64_t random = std::uint64_t{numbers.Next32()} << 32 | numbers.Next32();
  switch (numbers.Next32() % 3) {
    case 0:
      return kEdges[numbers.Next32() % (sizeof(kEdges) / sizeof(kEdges[0]))];
    case 1:
      return random % 2048;
    default:
      return random;
  }
}

CUfunction FindKernel() {
  cudaFunction_t function;
  CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(Plain)));
  return function;
}

void Occupancy(CUdevice device) {
  const CUfunction kernel = FindKernel();
  int threads = 0, sms = 0, most_blocks = 0, block_limit = 0, shared_per_sm = 0;
  CHECK_CU(
      cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device));
  CHECK_CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  CHECK_CU(cuDeviceGetAttribute(&most_blocks, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
                                device));
  CHECK_CU(cuDeviceGetAttribute(&block_limit, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
  CHECK_CU(cuDeviceGetAttribute(&shared_per_sm,
                                CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device));
  for (int round = 0; round < 2000; ++round) {
    const int block = static_cast<int>(Any());
    const std::size_t shared = Any();
    int blocks = -1;
    if (cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block, shared) ==
        CUDA_SUCCESS) {
      REQUIRE(block > 0 && blocks >= 0 && blocks <= most_blocks);
      REQUIRE(blocks == 0 || static_cast<std::int64_t>(blocks) * block <= threads);
      int flagged = -1;
      CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&flagged, kernel, block, shared,
                                                                    kKnownFlags));
      REQUIRE(flagged <= blocks);
    }
    const int limit = static_cast<int>(Any());
    int grid = -1, best = -1;
    if (cuOccupancyMaxPotentialBlockSize(&grid, &best, kernel, nullptr, shared % (48 * 1024),
                                         limit) == CUDA_SUCCESS) {
      REQUIRE(best >= 0 && best <= block_limit && (limit <= 0 || best <= limit));
      if (best > 0) {
        CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, best,
                                                             shared % (48 * 1024)));
        REQUIRE(grid == blocks * sms);
      }
    }
    const int wanted = static_cast<int>(Any());
    std::size_t available = 0;
    if (cuOccupancyAvailableDynamicSMemPerBlock(&available, kernel, wanted, block) == CUDA_SUCCESS)
      REQUIRE(wanted > 0 && available <= static_cast<std::size_t>(shared_per_sm / wanted));
    CUlaunchAttribute cluster{};
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim.x = static_cast<unsigned>(Any());
    cluster.value.clusterDim.y = 1;
    cluster.value.clusterDim.z = static_cast<unsigned>(Any()) % 3;
    CUlaunchConfig config{};
    config.gridDimX = static_cast<unsigned>(Any());
    config.gridDimY = static_cast<unsigned>(Any());
    config.gridDimZ = static_cast<unsigned>(Any()) % 4;
    config.blockDimX = static_cast<unsigned>(Any());
    config.blockDimY = static_cast<unsigned>(Any()) % 4;
    config.blockDimZ = static_cast<unsigned>(Any());
    config.sharedMemBytes = static_cast<unsigned>(Any());
    config.attrs = &cluster;
    config.numAttrs = numbers.Next32() % 2;
    int clusters = -1, size = -1;
    if (cuOccupancyMaxActiveClusters(&clusters, kernel, &config) == CUDA_SUCCESS)
      REQUIRE(clusters >= 0 && clusters <= sms * most_blocks);
    if (cuOccupancyMaxPotentialClusterSize(&size, kernel, &config) == CUDA_SUCCESS)
      REQUIRE(size >= 0 && size <= 16);
  }
  std::printf("occupancy: 2000 rounds\n");
}

// A launch configuration names the context by its stream, so a kernel of a library needs no current
// context.
void OccupancyOfStream(CUstream stream) {
  CUcontext context;
  CHECK_CU(cuCtxGetCurrent(&context));
  cudaKernel_t kernel;
  CHECK(cudaGetKernel(&kernel, reinterpret_cast<const void*>(Plain)));
  const auto function = reinterpret_cast<CUfunction>(kernel);
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  int with = -1, without = -1;
  const CUresult result = cuOccupancyMaxPotentialClusterSize(&with, function, &config);
  CHECK_CU(cuCtxSetCurrent(nullptr));
  EXPECT_CU(cuOccupancyMaxPotentialClusterSize(&without, function, &config), result);
  REQUIRE(with == without);
  CHECK_CU(cuCtxSetCurrent(context));
  std::printf("occupancy: the context of a stream\n");
}

// The configuration of a query is checked as that of a launch, in the order of driver 580.
void OccupancyOfConfigurations() {
  const CUfunction kernel = FindKernel();
  CUlaunchAttribute attribute{};
  CUlaunchConfig config{};
  config.gridDimX = 2;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto expect = [&](CUresult want) {
    int count = -1;
    EXPECT_CU(cuOccupancyMaxActiveClusters(&count, kernel, &config), want);
    EXPECT_CU(cuOccupancyMaxPotentialClusterSize(&count, kernel, &config), want);
    REQUIRE(count == -1);
  };
  attribute.id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  expect(CUDA_ERROR_INVALID_VALUE);
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = 3;
  attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  expect(CUDA_ERROR_INVALID_CLUSTER_SIZE);
  // A preferred cluster needs the cluster that always holds.
  attribute.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
  attribute.value.preferredClusterDim.x = 2;
  expect(CUDA_ERROR_INVALID_CLUSTER_SIZE);
  config.gridDimZ = 65536;
  expect(CUDA_ERROR_INVALID_VALUE);
  std::printf("occupancy: wrong configurations\n");
}

cuuint64_t GraphMemory(CUgraphMem_attribute attribute) {
  cuuint64_t value = 0;
  CHECK_CU(cuDeviceGetGraphMemAttribute(0, attribute, &value));
  return value;
}

// Runs a graph that allocates memory and frees it.
void AllocateInGraph(CUstream stream, std::size_t bytes) {
  CUgraph graph;
  CUdeviceptr memory;
  CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_CU(cuMemAllocAsync(&memory, bytes, stream));
  CHECK_CU(cuMemsetD8Async(memory, 1, bytes, stream));
  CHECK_CU(cuMemFreeAsync(memory, stream));
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec;
  CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

void GraphMemoryAttributes(CUstream stream) {
  AllocateInGraph(stream, 16 * kMiB);
  const cuuint64_t used = GraphMemory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH);
  const cuuint64_t reserved = GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
  REQUIRE(used >= 16 * kMiB && reserved >= 16 * kMiB);
  REQUIRE(GraphMemory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) <= used);
  REQUIRE(GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) <= reserved);
  // All of the pool counts as used. It grows in steps, and shrinks only when it is trimmed.
  REQUIRE(GraphMemory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) ==
          GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
  REQUIRE(GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) % (32 * kMiB) == 0);
  CHECK_CU(cuDeviceGraphMemTrim(0));
  REQUIRE(GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);

  // Each mark is reset alone, and only to zero.
  cuuint64_t value = 1;
  REQUIRE(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value) != CUDA_SUCCESS);
  value = 0;
  CHECK_CU(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value));
  REQUIRE(GraphMemory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) < used);
  REQUIRE(GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == reserved);
  AllocateInGraph(stream, 16 * kMiB);
  CHECK_CU(cuDeviceGraphMemTrim(0));
  CHECK_CU(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &value));
  REQUIRE(GraphMemory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) >= 16 * kMiB);
  REQUIRE(GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) < reserved);

  for (const int device : {-1, 1000, INT_MAX, INT_MIN}) {
    EXPECT_CU(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value),
              CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value),
              CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(cuDeviceGraphMemTrim(device), CUDA_ERROR_INVALID_DEVICE);
  }
  std::printf("graph memory: each mark for itself\n");
}

// Everything that is asked about a pointer at once.
struct Attributes {
  CUcontext context = reinterpret_cast<CUcontext>(1);
  unsigned type = 77, managed = 77;
  CUdeviceptr device_pointer = 77;
  CUresult result = CUDA_SUCCESS;
};

Attributes Ask(CUdeviceptr pointer) {
  Attributes found;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* data[] = {&found.context, &found.type, &found.device_pointer, &found.managed};
  found.result = cuPointerGetAttributes(4, names, data, pointer);
  return found;
}

// Memory that is gone is no memory: an error for one attribute, null values for several.
void CheckGone(const char* what, CUdeviceptr pointer) {
  CUcontext context;
  unsigned type;
  EXPECT_CU(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer),
            CUDA_ERROR_INVALID_VALUE);
  unsigned sync = 1;
  REQUIRE(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer) != CUDA_SUCCESS);
  const Attributes found = Ask(pointer);
  REQUIRE(found.result == CUDA_SUCCESS);
  REQUIRE(found.context == nullptr && found.type == 0 && found.device_pointer == 0);
  REQUIRE(found.managed == 0);
  std::printf("%s: gone\n", what);
}

void Pointers() {
  CUdeviceptr memory;
  CHECK_CU(cuMemAlloc(&memory, 64 * kMiB));
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, 64 * kMiB - 1}) {
    const Attributes found = Ask(memory + offset);
    REQUIRE(found.result == CUDA_SUCCESS && found.type == CU_MEMORYTYPE_DEVICE);
    REQUIRE(found.device_pointer == memory + offset && found.managed == 0);
    CUdeviceptr start;
    CHECK_CU(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + offset));
    REQUIRE(start == memory);
  }
  CHECK_CU(cuMemFree(memory));
  CheckGone("device memory", memory + kMiB);

  void* pinned;
  CHECK_CU(cuMemHostAlloc(&pinned, kMiB, CU_MEMHOSTALLOC_DEVICEMAP));
  REQUIRE(Ask(reinterpret_cast<CUdeviceptr>(pinned)).type == CU_MEMORYTYPE_HOST);
  CHECK_CU(cuMemFreeHost(pinned));
  CheckGone("pinned memory", reinterpret_cast<CUdeviceptr>(pinned));

  CHECK_CU(cuMemAllocManaged(&memory, kMiB, CU_MEM_ATTACH_GLOBAL));
  REQUIRE(Ask(memory).managed != 0);
  CHECK_CU(cuMemFree(memory));
  CheckGone("managed memory", memory);

  // An identity is never given twice, also where memory has the same address again.
  std::set<unsigned long long> identities;
  for (int round = 0; round < 50; ++round) {
    unsigned long long identity = 0;
    CHECK_CU(cuMemAlloc(&memory, kMiB));
    CHECK_CU(cuPointerGetAttribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
    REQUIRE(identities.insert(identity).second);
    CHECK_CU(cuMemFree(memory));
  }

  // Any number may be asked about.
  for (int round = 0; round < 2000; ++round) {
    const CUdeviceptr pointer = Any();
    const Attributes found = Ask(pointer);
    if (found.result != CUDA_SUCCESS) continue;
    REQUIRE(found.type == 0 || found.device_pointer != 0);
    std::uint64_t space[4];
    const auto name = static_cast<CUpointer_attribute>(Any());
    cuPointerGetAttribute(space, name, pointer);
  }
  std::printf("pointers: 2000 rounds\n");
}

// Seen with driver 580 on an H100.
void PoolLocations() {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1000};
  CUmemoryPool pool = nullptr;
  EXPECT_CU(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemGetMemPool(&pool, &properties.location, CU_MEM_ALLOCATION_TYPE_PINNED),
            CUDA_ERROR_INVALID_VALUE);
  properties.location.id = 0;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_WIN32;
  EXPECT_CU(cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_VALUE);
  properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  CHECK_CU(cuMemPoolCreate(&pool, &properties));
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_MAX;
  CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 1000};
  CHECK_CU(cuMemPoolGetAccess(&flags, pool, &host));
  REQUIRE(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_CU(cuMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_NOT_SUPPORTED);
  host = {static_cast<CUmemLocationType>(5), 0};
  EXPECT_CU(cuMemPoolGetAccess(&flags, pool, &host), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemPoolDestroy(pool));
}

void EventsAndAttachments() {
  CUevent untimed = nullptr;
  CHECK_CU(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  CHECK_CU(cuEventRecord(untimed, nullptr));
  EXPECT_CU(cuEventElapsedTime(nullptr, untimed, untimed), CUDA_ERROR_INVALID_HANDLE);
  CUipcEventHandle handle;
  std::fill_n(handle.reserved, sizeof handle.reserved, '\x55');
  EXPECT_CU(cuIpcGetEventHandle(&handle, untimed), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(std::count(handle.reserved, handle.reserved + sizeof handle.reserved, '\x55') < 64);
  CHECK_CU(cuEventDestroy(untimed));

  CUdeviceptr managed = 0;
  CHECK_CU(cuMemAllocManaged(&managed, 65536, CU_MEM_ATTACH_GLOBAL));
  EXPECT_CU(cuStreamAttachMemAsync(nullptr, managed, 0, CU_MEM_ATTACH_SINGLE),
            CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuStreamAttachMemAsync(CU_STREAM_LEGACY, managed, 0, CU_MEM_ATTACH_SINGLE));
  CHECK_CU(cuStreamSynchronize(CU_STREAM_LEGACY));
  CHECK_CU(cuMemFree(managed));
}

}  // namespace

int main() {
  const CUdevice device = check::UsePrimaryContext();
  CUstream stream;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Occupancy(device);
  OccupancyOfConfigurations();
  OccupancyOfStream(stream);
  GraphMemoryAttributes(stream);
  Pointers();
  PoolLocations();
  EventsAndAttachments();
  return check::Ok();
}
