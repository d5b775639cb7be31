#include "server/backends/soft/occupancy.h"

#include <cuda.h>
#include <cuda_occupancy.h>

#include <algorithm>
#include <map>

#include "server/backends/soft/soft_properties.h"

namespace detshare::soft {
namespace {

cudaOccDeviceProp DeviceOf(const DeviceProperties& properties) {
  const auto attribute = [&](int which) { return AttributeOf(properties, which); };
  cudaOccDeviceProp device;
  device.computeMajor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  device.computeMinor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  device.maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  device.maxThreadsPerMultiprocessor =
      attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  device.regsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  device.regsPerMultiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  device.warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  device.sharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  device.sharedMemPerMultiprocessor =
      attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  device.numSms = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  device.sharedMemPerBlockOptin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  device.reservedSharedMemPerBlock =
      attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  return device;
}

cudaOccFuncAttributes FunctionOf(const KernelResources& kernel) {
  cudaOccFuncAttributes function;
  function.maxThreadsPerBlock = kernel.max_threads_per_block;
  function.numRegs = kernel.registers_per_thread;
  function.sharedSizeBytes = kernel.static_shared_bytes;
  function.partitionedGCConfig = PARTITIONED_GC_OFF;
  function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  function.maxDynamicSharedSizeBytes = kernel.largest_dynamic_shared_bytes;
  function.numBlockBarriers = 1;
  return function;
}

cudaOccDeviceState StateOf(const KernelResources& kernel) {
  cudaOccDeviceState state;
  state.cacheConfig = CACHE_PREFER_NONE;
  state.carveoutConfig = kernel.carveout;
  return state;
}

// The toolkit's functions overflow for block sizes that no device has, as clients may ask for.
bool IsBlockSize(const cudaOccDeviceProp& device, int block_size) {
  return block_size > 0 && block_size <= device.maxThreadsPerBlock;
}

}  // namespace

int MaxActiveBlocks(const DeviceProperties& properties, const KernelResources& kernel,
                    int block_size, uint64_t dynamic_shared_bytes) {
  const cudaOccDeviceProp device = DeviceOf(properties);
  if (!IsBlockSize(device, block_size)) return 0;
  if (dynamic_shared_bytes > kernel.largest_dynamic_shared_bytes) return 0;
  cudaOccFuncAttributes function = FunctionOf(kernel);
  // Driver 580 ignores the kernel's own launch bound: for a kernel of at most 128 threads it
  // returns 8 blocks of 256 threads.
  function.maxThreadsPerBlock = device.maxThreadsPerBlock;
  const cudaOccDeviceState state = StateOf(kernel);
  cudaOccResult result;
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, block_size,
                                              dynamic_shared_bytes) != CUDA_OCC_SUCCESS) {
    return 0;
  }
  return result.activeBlocksPerMultiprocessor;
}

int MostRegisters(const DeviceProperties& properties, int block_size, int blocks) {
  // Hardware allocates registers in units of 8, and an instruction names at most 255.
  constexpr int kUnit = 8, kMin = 16, kMax = 255;
  KernelResources kernel;
  const auto fit = [&](int registers) {
    kernel.registers_per_thread = registers;
    return MaxActiveBlocks(properties, kernel, block_size, 0);
  };
  if (fit(kMin) < blocks) blocks = 1;
  int registers = kMin;
  while (registers + kUnit <= kMax + 1 && fit(registers + kUnit) >= blocks) registers += kUnit;
  return std::min(registers, kMax);
}

int LargestBlock(const DeviceProperties& properties, int registers) {
  const int warp = AttributeOf(properties, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  KernelResources kernel;
  kernel.registers_per_thread = registers;
  int threads = AttributeOf(properties, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  while (threads > warp && MaxActiveBlocks(properties, kernel, threads, 0) == 0) threads -= warp;
  return threads;
}

uint64_t AvailableDynamicShared(const DeviceProperties& properties, const KernelResources& kernel,
                                int blocks, int block_size) {
  const cudaOccDeviceProp device = DeviceOf(properties);
  if (!IsBlockSize(device, block_size)) return 0;
  const cudaOccFuncAttributes function = FunctionOf(kernel);
  const cudaOccDeviceState state = StateOf(kernel);
  size_t bytes = 0;
  if (cudaOccAvailableDynamicSMemPerBlock(&bytes, &device, &function, &state, blocks, block_size) !=
      CUDA_OCC_SUCCESS) {
    return 0;
  }
  return bytes;
}

int MaxActiveClusters(const DeviceProperties& properties, int first_sm, int sm_count,
                      int blocks_per_sm, int cluster_blocks) {
  std::map<int, int> sms_of_gpc;
  for (int sm = first_sm; sm < first_sm + sm_count; ++sm) ++sms_of_gpc[properties.tpc_gpc[sm / 2]];
  int clusters = 0;
  for (const auto& [gpc, sms] : sms_of_gpc) clusters += sms * blocks_per_sm / cluster_blocks;
  return clusters;
}

}  // namespace detshare::soft
