#include "server/backends/soft/soft_launch.h"

#include <cuda.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/backends/soft/occupancy.h"
#include "server/backends/soft/soft_properties.h"

namespace detshare::soft {
namespace {

constexpr int kPortableClusterSize = 8;
constexpr int kLargestClusterSize = 16;
constexpr uint32_t kWarpSize = 32;
constexpr uint64_t kMaxBytesInFlight = 2ull << 30;  // for one launch
constexpr uint64_t kRegisterBytesPerThread = 1024;

using Dimensions = std::array<uint32_t, 3>;

Dimensions DimensionsOf(const Dim3& dim) { return {dim.x, dim.y, dim.z}; }

uint64_t Product(const Dimensions& d) { return uint64_t{d[0]} * d[1] * d[2]; }

absl::Status CheckDimensions(const DeviceProperties& device, const Dimensions& grid,
                             const Dimensions& block) {
  for (int i = 0; i < 3; ++i) {
    if (grid[i] == 0 || block[i] == 0)
      return InvalidValue("a grid and a block need at least 1 in each dimension");
    if (grid[i] >
        static_cast<uint32_t>(AttributeOf(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i))) {
      return InvalidValue("the grid is too large");
    }
    if (block[i] >
        static_cast<uint32_t>(AttributeOf(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i))) {
      return InvalidValue("the block is too large");
    }
  }
  if (Product(block) >
      static_cast<uint64_t>(AttributeOf(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK))) {
    return InvalidValue("the block has too many threads");
  }
  return absl::OkStatus();
}

// Returns the shape of the launch's clusters; 1 x 1 x 1 when it has none.
absl::StatusOr<Dimensions> ClusterOf(const DeviceProperties& device, const SoftKernel& kernel,
                                     const std::array<int32_t, 24>& attributes,
                                     const LaunchShape& shape) {
  const auto refuse = [](std::string_view reason) {
    return CudaError(kCudaErrorInvalidClusterSize, reason);
  };
  Dimensions required;
  for (int i = 0; i < 3; ++i) {
    required[i] = static_cast<uint32_t>(attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i]);
  }
  const bool has_required = Product(required) != 0;
  Dimensions cluster = DimensionsOf(shape.cluster);
  const bool given = Product(cluster) != 0;
  if (!given && (cluster[0] | cluster[1] | cluster[2]) != 0)
    return refuse("a cluster needs at least 1 block");
  if (!given) {
    if (!has_required && attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET]) {
      return refuse("the kernel must be launched with a cluster size");
    }
    cluster = has_required ? required : Dimensions{1, 1, 1};
  } else if (has_required && cluster != required) {
    return refuse("the kernel was compiled for another cluster size");
  }
  const uint64_t blocks = Product(cluster);
  if (blocks == 1) return cluster;
  if (AttributeOf(device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) == 0) {
    return CudaError(kCudaErrorNotSupported, "clusters need compute capability 9.0");
  }
  const int largest = attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED]
                          ? kLargestClusterSize
                          : kPortableClusterSize;
  if (blocks > static_cast<uint64_t>(largest))
    return refuse(absl::StrCat("a cluster has at most ", largest, " blocks"));
  const uint32_t rank = kernel.ptx_info().max_cluster_rank;
  if (rank != 0 && blocks > rank) return refuse("the kernel was compiled for smaller clusters");
  const Dimensions grid = DimensionsOf(shape.grid);
  for (int i = 0; i < 3; ++i) {
    if (grid[i] % cluster[i] != 0) return refuse("the grid does not consist of whole clusters");
  }
  return cluster;
}

}  // namespace

absl::StatusOr<GridRequest> PlanLaunch(const DeviceProperties& device, SmRange sms,
                                       std::shared_ptr<SpaceState> space, SoftKernel& kernel,
                                       const LaunchShape& shape,
                                       absl::Span<const std::byte> parameters) {
  if (kernel.module()->space != space)
    return CudaError(kCudaErrorInvalidHandle, "the kernel belongs to another session");
  const std::array<int32_t, 24> attributes = kernel.attributes();
  const ptx::KernelInfo& info = kernel.ptx_info();
  const Dimensions grid = DimensionsOf(shape.grid), block = DimensionsOf(shape.block);

  absl::Status status = CheckDimensions(device, grid, block);
  if (!status.ok()) return status;
  if (Product(info.required_block) != 0 && block != info.required_block) {
    return InvalidValue("the kernel was compiled for another block size");
  }
  const uint64_t threads = Product(block);
  if (threads > static_cast<uint64_t>(attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) {
    return CudaError(kCudaErrorLaunchOutOfResources,
                     "the block has more threads than the kernel's launch bound");
  }
  if (shape.dynamic_shared_bytes >
      static_cast<uint64_t>(attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])) {
    return InvalidValue("the launch has more dynamic shared memory than the kernel allows");
  }
  if (parameters.size() < info.param_bytes) return InvalidValue("parameters are missing");
  absl::StatusOr<Dimensions> cluster = ClusterOf(device, kernel, attributes, shape);
  if (!cluster.ok()) return cluster.status();
  const uint64_t cluster_blocks = Product(*cluster);

  const int per_sm = MaxActiveBlocks(device, kernel.resources(), static_cast<int>(threads),
                                     shape.dynamic_shared_bytes);
  if (per_sm == 0) return CudaError(kCudaErrorLaunchOutOfResources, "no block fits on an SM");
  const uint64_t resident = uint64_t{static_cast<uint32_t>(per_sm)} * sms.count;
  if (shape.cooperative && Product(grid) > resident) {
    return CudaError(kCudaErrorCooperativeLaunchTooLarge,
                     absl::StrCat(Product(grid), " blocks of a cooperative launch, but only ",
                                  resident, " fit"));
  }
  if (cluster_blocks > resident) {
    return CudaError(kCudaErrorInvalidClusterSize, "a cluster does not fit into the partition");
  }

  // The memory of the daemon that the blocks in flight use if they touch all of their stacks.
  const uint64_t stack = std::max<uint64_t>(space->stack_bytes.load(std::memory_order_relaxed),
                                            info.local_bytes_per_thread);
  const uint64_t unit_bytes =
      cluster_blocks * (threads * (stack + kRegisterBytesPerThread) + info.static_shared_bytes +
                        shape.dynamic_shared_bytes);
  const uint64_t affordable = kMaxBytesInFlight / unit_bytes;
  if (affordable == 0 || (shape.cooperative && Product(grid) / cluster_blocks > affordable)) {
    return CudaError(kCudaErrorLaunchOutOfResources, "the blocks' stacks do not fit into memory");
  }

  GridRequest request;
  request.device = &device;
  request.module = kernel.module();
  request.kernel = kernel.index();
  request.placement.first_sm = sms.first;
  request.placement.sm_count = sms.count;
  request.placement.blocks_per_sm = per_sm;
  request.placement.blocks_per_unit = static_cast<uint32_t>(cluster_blocks);
  request.placement.units = Product(grid) / cluster_blocks;
  request.placement.warps_per_block = (threads + kWarpSize - 1) / kWarpSize;
  request.resident_units = std::clamp<uint64_t>(resident / cluster_blocks, 1, affordable);
  request.config.grid = grid;
  request.config.block = block;
  request.config.cluster = *cluster;
  request.config.dynamic_shared_bytes = shape.dynamic_shared_bytes;
  request.config.max_shared_bytes = static_cast<uint32_t>(
      AttributeOf(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  request.config.stack_bytes_per_thread =
      static_cast<uint32_t>(space->stack_bytes.load(std::memory_order_relaxed));
  request.config.sm_count = static_cast<uint32_t>(device.sm_count);
  request.config.cooperative = shape.cooperative;
  const auto* bytes = reinterpret_cast<const uint8_t*>(parameters.data());
  request.config.params.assign(bytes, bytes + info.param_bytes);
  if (request.module->module->launches_kernels()) {
    request.plan_child = [&device, sms, space, module = request.module](
                             const ptx::ChildLaunch& child) -> absl::StatusOr<GridRequest> {
      SoftKernel kernel(device, module, child.kernel);
      LaunchShape shape;
      shape.grid = {child.grid[0], child.grid[1], child.grid[2]};
      shape.block = {child.block[0], child.block[1], child.block[2]};
      shape.dynamic_shared_bytes = child.dynamic_shared_bytes;
      return PlanLaunch(device, sms, space, kernel, shape,
                        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(child.params.data()),
                                            child.params.size()));
    };
  }
  request.space = std::move(space);
  return request;
}

void NumberLaunch(GridRequest& request, uint64_t number) {
  request.config.grid_id = number;
  // The global timer must not depend on the speed of the host, so it counts the launches of the
  // session.
  request.config.start_time_ns = number * 10'000;
  request.config.start_cycle = request.config.start_time_ns * kClockKhz / 1'000'000;
}

}  // namespace detshare::soft
