// Occupancy. The shim asks the daemon once for each kernel and shape, and does all searches itself.
#include "proto/wire/occupancy.h"

#include <algorithm>
#include <limits>

#include "client_shim/code/libraries.h"
#include "client_shim/objects/current_context.h"
#include "client_shim/work/launch.h"
#include "client_shim/work/potential_block_size.h"
#include "proto/driver_api/shim_api.h"

namespace detshare::shim::api {
namespace {

struct Target {
  KernelInstance* instance = nullptr;
  uint16_t device = 0;
  ContextId context = 0;

  const DeviceInfo& info() const { return session().device(device); }
  int attribute(CUfunction_attribute which) const {
    return instance->attributes[which].load(std::memory_order_relaxed);
  }
};

// The context is that of the stream, or the current one if there is no such stream.
CUresult Find(CUfunction function, Target* target, CUstream handle = nullptr) {
  const Stream* stream =
      objects().streams.Find(HandleKind::kStream, reinterpret_cast<uint64_t>(handle));
  Context* context = stream != nullptr ? stream->context : nullptr;
  if (context == nullptr) {
    if (const CUresult result = CurrentContext(&context); result != CUDA_SUCCESS) return result;
  }
  Kernel* kernel = FindFunction(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  target->device = context->device;
  target->context = context->id.load(std::memory_order_acquire);
  return InstanceOn(*kernel, context->device, &target->instance);
}

// The key under which a reply is kept. The first word says which query it is. MaxActiveBlocks uses
// 1.
using Key = std::array<uint64_t, 8>;
constexpr uint64_t kAvailableSharedMemory = 2, kPotentialClusterSize = 3, kActiveClusters = 4;

constexpr uint64_t Pack(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

template <typename Args, typename Reply>
CUresult Ask(const Target& target, const Key& key, Op op, const Args& args,
             int64_t (*value)(const Reply&), int64_t* reply) {
  KernelInstance& instance = *target.instance;
  const std::lock_guard lock(instance.mutex);
  if (const auto known = instance.occupancy.find(key); known != instance.occupancy.end()) {
    *reply = known->second;
    return CUDA_SUCCESS;
  }
  Reply fresh{};
  const CUresult result = session().Call(op, target.device, target.context, args, &fresh);
  if (result != CUDA_SUCCESS) return result;
  *reply = instance.occupancy[key] = value(fresh);
  return CUDA_SUCCESS;
}

// Reads the launch that a query is about, and checks it as driver 580 does: less strictly than for
// a launch, because blocks may be too large.
CUresult ReadConfig(const Target& target, const CUlaunchConfig& config, LaunchRequest* request) {
  if (config.gridDimX == 0 || config.gridDimY == 0 || config.gridDimZ == 0 ||
      config.blockDimX == 0 || config.blockDimY == 0 || config.blockDimZ == 0)
    return CUDA_ERROR_INVALID_VALUE;
  request->grid[0] = config.gridDimX;
  request->grid[1] = config.gridDimY;
  request->grid[2] = config.gridDimZ;
  LaunchEvents events;
  if (const CUresult result = ParseAttributes(config, request, &events); result != CUDA_SUCCESS)
    return result;
  if (!GridAllowed(target.device, *request)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckPreferredCluster(*request, events); result != CUDA_SUCCESS)
    return result;
  if ((request->flags & wire::kLaunchHasCluster) == 0) return CUDA_SUCCESS;
  // A query may name a cluster that no device has.
  return CheckCluster(*target.instance, *request, std::numeric_limits<uint64_t>::max());
}

}  // namespace

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      numBlocks, func, blockSize, dynamicSMemSize, CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
  Target target;
  if (const CUresult result = Find(func, &target); result != CUDA_SUCCESS) return result;
  if (blockSize <= 0 ||
      (flags & ~static_cast<unsigned int>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return MaxActiveBlocks(*target.instance, target.device, target.context, blockSize,
                         dynamicSMemSize, flags, numBlocks);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return api::cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func,
                                                        blockSizeToDynamicSMemSize, dynamicSMemSize,
                                                        blockSizeLimit, CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  Target target;
  if (const CUresult result = Find(func, &target); result != CUDA_SUCCESS) return result;
  if (blockSizeLimit < 0 ||
      (flags & ~static_cast<unsigned int>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  BlockSizeSearch search;
  search.warp_size = target.info().attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  search.multiprocessors = target.info().attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  search.threads_per_multiprocessor =
      target.info().attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  search.limit = std::min(target.info().attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                          target.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  if (blockSizeLimit != 0) search.limit = std::min(search.limit, blockSizeLimit);
  const auto blocks_for = [&](int block_size, int* blocks) {
    const size_t shared = blockSizeToDynamicSMemSize != nullptr
                              ? blockSizeToDynamicSMemSize(block_size)
                              : dynamicSMemSize;
    return MaxActiveBlocks(*target.instance, target.device, target.context, block_size, shared,
                           flags, blocks);
  };
  return FindBlockSize(search, blocks_for, minGridSize, blockSize);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
  Target target;
  if (const CUresult result = Find(func, &target); result != CUDA_SUCCESS) return result;
  if (numBlocks <= 0 || blockSize <= 0) return CUDA_ERROR_INVALID_VALUE;
  using Reply = wire::cuOccupancyAvailableDynamicSMemPerBlock_Reply;
  const Key key{kAvailableSharedMemory, static_cast<uint64_t>(numBlocks),
                static_cast<uint64_t>(blockSize)};
  const wire::cuOccupancyAvailableDynamicSMemPerBlock args{target.instance->id, numBlocks,
                                                           blockSize, 0};
  int64_t bytes;
  const CUresult result = Ask<decltype(args), Reply>(
      target, key, Op::cuOccupancyAvailableDynamicSMemPerBlock, args,
      [](const Reply& reply) { return static_cast<int64_t>(reply.bytes); }, &bytes);
  if (result == CUDA_SUCCESS) *dynamicSmemSize = static_cast<size_t>(bytes);
  return result;
}

CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                            const CUlaunchConfig* config) {
  Target target;
  if (const CUresult result = Find(func, &target, config->hStream); result != CUDA_SUCCESS)
    return result;
  LaunchRequest launch;
  if (const CUresult result = ReadConfig(target, *config, &launch); result != CUDA_SUCCESS)
    return result;
  using Reply = wire::cuOccupancyMaxPotentialClusterSize_Reply;
  const Key key{kPotentialClusterSize, Pack(config->gridDimX, config->gridDimY),
                Pack(config->gridDimZ, config->blockDimX),
                Pack(config->blockDimY, config->blockDimZ), config->sharedMemBytes};
  const wire::cuOccupancyMaxPotentialClusterSize args{
      target.instance->id,
      {config->gridDimX, config->gridDimY, config->gridDimZ},
      {config->blockDimX, config->blockDimY, config->blockDimZ},
      config->sharedMemBytes};
  int64_t size;
  const CUresult result = Ask<decltype(args), Reply>(
      target, key, Op::cuOccupancyMaxPotentialClusterSize, args,
      [](const Reply& reply) { return int64_t{reply.cluster_size}; }, &size);
  if (result == CUDA_SUCCESS) *clusterSize = static_cast<int>(size);
  return result;
}

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                      const CUlaunchConfig* config) {
  Target target;
  if (const CUresult result = Find(func, &target, config->hStream); result != CUDA_SUCCESS)
    return result;
  LaunchRequest launch;
  if (const CUresult result = ReadConfig(target, *config, &launch); result != CUDA_SUCCESS)
    return result;
  // Zeros: the launch has none.
  uint32_t cluster[] = {launch.cluster[0], launch.cluster[1], launch.cluster[2]};
  if ((launch.flags & wire::kLaunchHasCluster) == 0) {
    cluster[0] = target.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
    cluster[1] = target.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
    cluster[2] = target.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
  }
  if (cluster[0] == 0) {
    *numClusters = 0;
    return CUDA_SUCCESS;
  }
  using Reply = wire::cuOccupancyMaxActiveClusters_Reply;
  const Key key{kActiveClusters,
                Pack(config->gridDimX, config->gridDimY),
                Pack(config->gridDimZ, config->blockDimX),
                Pack(config->blockDimY, config->blockDimZ),
                Pack(cluster[0], cluster[1]),
                Pack(cluster[2], config->sharedMemBytes)};
  const wire::cuOccupancyMaxActiveClusters args{
      target.instance->id,
      {config->gridDimX, config->gridDimY, config->gridDimZ},
      {config->blockDimX, config->blockDimY, config->blockDimZ},
      {cluster[0], cluster[1], cluster[2]},
      config->sharedMemBytes,
      0};
  int64_t clusters;
  const CUresult result = Ask<decltype(args), Reply>(
      target, key, Op::cuOccupancyMaxActiveClusters, args,
      [](const Reply& reply) { return int64_t{reply.clusters}; }, &clusters);
  if (result == CUDA_SUCCESS) *numClusters = static_cast<int>(clusters);
  return result;
}

}  // namespace detshare::shim::api
