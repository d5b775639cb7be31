#include "server/backends/soft/soft_properties.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <map>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/soft_time_slices.h"

namespace detshare::soft {
namespace {

// The properties that differ between architectures.
struct Architecture {
  int sm;
  int threads_per_sm;
  int blocks_per_sm;
  int shared_kib_per_sm;
  int shared_kib_per_block;  // with opt-in
  int double_ratio;          // single to double precision throughput
};
constexpr std::array<Architecture, 10> kArchitectures = {{
    {75, 1024, 16, 64, 64, 32},
    {80, 2048, 32, 164, 163, 2},
    {86, 1536, 16, 100, 99, 64},
    {87, 1536, 16, 164, 163, 64},
    {89, 1536, 24, 100, 99, 64},
    {90, 2048, 32, 228, 227, 2},
    {100, 2048, 32, 228, 227, 2},
    {103, 2048, 32, 228, 227, 2},
    {120, 1536, 24, 100, 99, 64},
    {121, 1536, 24, 100, 99, 64},
}};

constexpr int kReservedSharedBytes = 1024;
constexpr int kDriverVersion = 13000;
constexpr int kGreatestPriority = -5;

void AddTopology(DeviceProperties& properties) {
  // The order of an examined H200: TPCs of eight GPCs in turn, of which one GPC is short, and then
  // TPCs that belong to no GPC.
  const int tpcs = (properties.sm_count + 1) / 2;
  for (int tpc = 0; tpc < tpcs; ++tpc) {
    int gpc, index;
    if (tpc < 32) {
      gpc = tpc % 8, index = tpc / 8;
    } else if (tpc < 60) {
      gpc = 1 + (tpc - 32) % 7, index = 4 + (tpc - 32) / 7;
    } else if (tpc < 62) {
      gpc = 6 + (tpc - 60), index = 8;
    } else {
      static constexpr std::array<int, 4> kSingletons = {0x0b, 0x0e, 0x11, 0x13};
      gpc = tpc < 66 ? kSingletons[tpc - 62] : 0x14 + (tpc - 66), index = 0;
    }
    properties.tpc_gpc.push_back(static_cast<uint8_t>(gpc));
    properties.tpc_index.push_back(static_cast<uint8_t>(index));
  }
}

using Attributes = std::map<int, int>;

void AddMultiprocessors(const SoftDeviceOptions& options, const Architecture& architecture,
                        Attributes& a) {
  a[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = options.compute_major;
  a[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = options.compute_minor;
  a[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = options.sm_count;
  a[CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 32;
  a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
  a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = 1024;
  a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] = 1024;
  a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] = 64;
  a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = 2147483647;
  a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y] = 65535;
  a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] = 65535;
  a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = architecture.threads_per_sm;
  a[CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR] = architecture.blocks_per_sm;
  a[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] = 65536;
  a[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] = 65536;
  a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK] = 48 * 1024;
  a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] =
      architecture.shared_kib_per_block * 1024;
  a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR] =
      architecture.shared_kib_per_sm * 1024;
  a[CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK] =
      architecture.sm >= 80 ? kReservedSharedBytes : 0;
  a[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY] = 65536;
  a[CU_DEVICE_ATTRIBUTE_MAX_PITCH] = 2147483647;
  a[CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO] = architecture.double_ratio;
}

void AddMemory(Attributes& a) {
  a[CU_DEVICE_ATTRIBUTE_CLOCK_RATE] = 1980000;
  a[CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE] = 3201000;
  a[CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH] = 6144;
  a[CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE] = 60 << 20;
  a[CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE] = 37 << 20;
  a[CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE] = 134217728;
  a[CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED] = 1;
  a[CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED] = 1;
}

void AddFeatures(const SoftDeviceOptions& options, Attributes& a) {
  a[CU_DEVICE_ATTRIBUTE_GPU_OVERLAP] = 1;
  a[CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT] = 3;
  a[CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS] = 1;
  a[CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED] = 1;
  a[CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED] = 1;
  a[CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH] = 1;
  a[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] = options.compute_major >= 9 ? 1 : 0;
  a[CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED] = options.compute_major >= 9 ? 1 : 0;
  a[CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS] = 1;
  a[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT] = 4;
  a[CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] = 1;
  a[CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR] = 1;

  a[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1;
  a[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = 1;
  a[CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = 1;
  a[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1;
}

// The limits of textures and surfaces.
void AddTextureLimits(Attributes& a) {
  a[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT] = 512;
  a[CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT] = 32;
  a[CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT] = 512;
  for (int attribute :
       {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH}) {
    a[attribute] = 131072;
  }
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT] = 65536;
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT] = 65000;
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH] = 2097120;
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT] = 65536;
  for (int attribute :
       {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH}) {
    a[attribute] = 16384;
  }
  for (int attribute : {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH}) {
    a[attribute] = 32768;
  }
  for (int attribute : {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS,
                        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS}) {
    a[attribute] = 2048;
  }
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS] = 2046;
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS] = 2046;
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH] = 268435456;
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE] = 8192;
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE] = 8192;
  a[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE] = 32768;
  a[CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER] = 1;
}

void AddPlace(const SoftDeviceOptions& options, Attributes& a) {
  a[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] = 0;
  a[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] = 0xd0 + options.ordinal;
  a[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] = 0;
  a[CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID] = options.ordinal;
  a[CU_DEVICE_ATTRIBUTE_NUMA_ID] = -1;
  a[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID] = -1;
}

void AddAttributes(const SoftDeviceOptions& options, const Architecture& architecture,
                   DeviceProperties& properties) {
  Attributes& a = properties.attributes;
  // The device does not have the features that the code below does not set.
  for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; ++attribute) a[attribute] = 0;
  AddMultiprocessors(options, architecture, a);
  AddMemory(a);
  AddFeatures(options, a);
  AddTextureLimits(a);
  AddPlace(options, a);
}

void AddLimits(DeviceProperties& properties) {
  properties.limits.assign(CU_LIMIT_MAX, 0);
  properties.limits[CU_LIMIT_STACK_SIZE] = 1024;
  properties.limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20;
  properties.limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
  properties.limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  properties.limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

}  // namespace

absl::StatusOr<DeviceProperties> MakeProperties(const SoftDeviceOptions& options) {
  const int sm = options.compute_major * 10 + options.compute_minor;
  const auto architecture = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                         [&](const Architecture& known) { return known.sm == sm; });
  if (architecture == kArchitectures.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the software GPU does not support compute capability ", options.compute_major,
                     ".", options.compute_minor));
  }
  if (options.sm_count < 1 || options.sm_count > 1024 || options.sm_group < 1) {
    return absl::InvalidArgumentError("a software GPU has 1 to 1024 SMs, in groups of 1 or more");
  }
  if (options.ordinal < 0 || options.ordinal > 15)
    return absl::InvalidArgumentError("a daemon has at most 16 software GPUs");

  DeviceProperties properties;
  properties.virtual_time = true;
  properties.ptx_only = true;
  properties.name = options.name;
  // The UUID is constant, so that a program that stores it finds the device again.
  properties.uuid = {
      0xde, 0x75, 0x4a, 0x7e, 0x50, 0xf7, 0x40, 0x90,
      0x80, 0,    0,    0,    0,    0,    0,    static_cast<uint8_t>(options.ordinal)};
  properties.total_memory = options.total_memory;
  properties.memory_granularity = 512;
  properties.driver_version = kDriverVersion;
  properties.sm_count = options.sm_count;
  properties.sm_group = std::min(options.sm_group, options.sm_count);
  properties.least_stream_priority = 0;
  properties.greatest_stream_priority = kGreatestPriority;
  properties.preemption.available = options.preemption;
  if (options.preemption) {
    properties.preemption.latency_ns = static_cast<int64_t>(kPreempt / 1000);
  } else {
    properties.preemption = Preemption::SwitchedOff();
  }
  AddAttributes(options, *architecture, properties);
  AddLimits(properties);
  AddTopology(properties);
  return properties;
}

int AttributeOf(const DeviceProperties& properties, int attribute) {
  const auto found = properties.attributes.find(attribute);
  return found == properties.attributes.end() ? 0 : found->second;
}

int SmVersionOf(const DeviceProperties& properties) {
  return AttributeOf(properties, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
         AttributeOf(properties, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

}  // namespace detshare::soft
