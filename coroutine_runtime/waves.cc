#include "coroutine_runtime/waves.h"

#include <algorithm>

#include "coroutine_runtime/device_attributes.h"

namespace detshare {
namespace {

// Numbers of CUdevice_attribute.
constexpr int kMaxThreadsPerSm = 39, kMaxSharedPerSm = 81, kMaxRegistersPerSm = 82,
              kMaxBlocksPerSm = 106, kReservedSharedPerBlock = 111;
// Numbers of CUfunction_attribute.
constexpr int kSharedBytes = 1, kRegisters = 4;

using Wide = unsigned __int128;

// The blocks that fit on an SM at a time; 0 if that is unknown.
uint64_t FittingBlocks(const DeviceProperties& properties, const KernelInfo& kernel,
                       const LaunchShape& shape) {
  const uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  if (threads == 0) return 0;
  const auto positive = [](int value) { return value > 0 ? static_cast<uint64_t>(value) : 0; };
  const uint64_t registers = positive(kernel.attributes[kRegisters]) * threads;
  const uint64_t shared = positive(kernel.attributes[kSharedBytes]) + shape.dynamic_shared_bytes +
                          AttributeOf(properties, kReservedSharedPerBlock);
  uint64_t fitting = UINT64_MAX;
  const auto limit = [&](int attribute, uint64_t needed) {
    const uint64_t there = AttributeOf(properties, attribute);
    if (there != 0 && needed != 0)
      fitting = std::min(fitting, std::max<uint64_t>(1, there / needed));
  };
  limit(kMaxBlocksPerSm, 1);
  limit(kMaxThreadsPerSm, threads);
  limit(kMaxRegistersPerSm, registers);
  limit(kMaxSharedPerSm, shared);
  return fitting == UINT64_MAX ? 0 : fitting;
}

// The blocks that fit on the whole device at a time; 0 if that is unknown.
Wide PlacesOf(const DeviceProperties& properties, const KernelInfo& kernel,
              const LaunchShape& shape) {
  if (properties.sm_count <= 0) return 0;
  return Wide{FittingBlocks(properties, kernel, shape)} *
         static_cast<uint64_t>(properties.sm_count);
}

Wide BlocksOf(const LaunchShape& shape) { return Wide{shape.grid.x} * shape.grid.y * shape.grid.z; }

bool RunTogether(const LaunchShape& shape) { return shape.cooperative || shape.cluster.x != 0; }

}  // namespace

uint64_t WavesOf(const DeviceProperties& properties, const KernelInfo& kernel,
                 const LaunchShape& shape) {
  const Wide places = PlacesOf(properties, kernel, shape);
  if (RunTogether(shape) || places == 0) return 1;
  return static_cast<uint64_t>(
      std::clamp<Wide>(BlocksOf(shape) / places, 1, static_cast<Wide>(UINT64_MAX)));
}

bool NeedsEveryPlace(const DeviceProperties& properties, const KernelInfo& kernel,
                     const LaunchShape& shape) {
  if (RunTogether(shape)) return true;
  const Wide places = PlacesOf(properties, kernel, shape);
  if (places <= 1) return true;
  const auto waves = [&](Wide at_a_time) { return (BlocksOf(shape) + at_a_time - 1) / at_a_time; };
  return waves(places - 1) > waves(places);
}

}  // namespace detshare
