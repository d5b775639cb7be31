#include "coroutine_runtime/waves.h"

#include <algorithm>
#include <optional>

#include "coroutine_runtime/device_attributes.h"

namespace detshare {
namespace {

// Numbers of CUdevice_attribute.
constexpr int kMaxThreadsPerSm = 39, kMaxSharedPerSm = 81, kMaxRegistersPerSm = 82,
              kMaxBlocksPerSm = 106, kReservedSharedPerBlock = 111;
// Numbers of CUfunction_attribute.
constexpr int kSharedBytes = 1, kRegisters = 4, kPreferredCarveout = 9, kRequiredClusterWidth = 11;

// An SM gives registers to a warp in units of 8 for each thread, from the file of one of its four parts
// (CUDA's occupancy calculator, compute capabilities 7.0 to 12.1).
constexpr uint64_t kWarp = 32, kUnit = 8, kParts = 4;

using Wide = unsigned __int128;

uint64_t CeilOf(uint64_t value, uint64_t divisor) { return (value + divisor - 1) / divisor; }

uint64_t Positive(int value) { return value > 0 ? static_cast<uint64_t>(value) : 0; }

// The blocks that fit on an SM at a time.
struct Fitting {
  uint64_t alone = UINT64_MAX;
  uint64_t beside_hold = UINT64_MAX;
};

// Nothing if that is unknown.
std::optional<Fitting> FittingBlocks(const DeviceProperties& properties, const KernelInfo& kernel,
                                     const LaunchShape& shape) {
  const uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  if (threads == 0) return std::nullopt;
  const uint64_t warps = CeilOf(threads, kWarp);
  const uint64_t reserved = AttributeOf(properties, kReservedSharedPerBlock);
  Fitting fitting;
  const auto limit = [&](uint64_t there, uint64_t held, uint64_t needed) {
    if (there == 0 || needed == 0) return;
    fitting.alone = std::min(fitting.alone, there / needed);
    fitting.beside_hold = std::min(fitting.beside_hold, (there - std::min(there, held)) / needed);
  };
  limit(AttributeOf(properties, kMaxBlocksPerSm), 1, 1);
  limit(AttributeOf(properties, kMaxThreadsPerSm) / kWarp, 1, warps);
  limit(AttributeOf(properties, kMaxSharedPerSm), reserved,
        Positive(kernel.attributes[kSharedBytes]) + shape.dynamic_shared_bytes + reserved);
  const uint64_t units = CeilOf(Positive(kernel.attributes[kRegisters]), kUnit);
  const uint64_t part = AttributeOf(properties, kMaxRegistersPerSm) / (kParts * kWarp * kUnit);
  if (units != 0 && part != 0) {
    const uint64_t part_with_hold = part - std::min(part, CeilOf(GroupHold::kRegisters, kUnit));
    const uint64_t warps_in_all = part / units * kParts;
    limit(warps_in_all, part / units - part_with_hold / units, warps);
  }
  if (fitting.alone == UINT64_MAX) return std::nullopt;
  // A kernel that wants another division of the SM's memory waits until the SM is empty.
  const int carveout = kernel.attributes[kPreferredCarveout];
  if (carveout >= 0 && carveout < 100) fitting.beside_hold = 0;
  return fitting;
}

Wide BlocksOf(const LaunchShape& shape) { return Wide{shape.grid.x} * shape.grid.y * shape.grid.z; }

bool RunTogether(const KernelInfo& kernel, const LaunchShape& shape) {
  return shape.cooperative || shape.cluster.x != 0 || kernel.attributes[kRequiredClusterWidth] > 0;
}

}  // namespace

uint64_t WavesOf(const DeviceProperties& properties, const KernelInfo& kernel,
                 const LaunchShape& shape) {
  const auto fitting = FittingBlocks(properties, kernel, shape);
  if (RunTogether(kernel, shape) || !fitting || properties.sm_count <= 0) return 1;
  const Wide places =
      Wide{std::max<uint64_t>(1, fitting->alone)} * static_cast<uint64_t>(properties.sm_count);
  return static_cast<uint64_t>(
      std::clamp<Wide>(BlocksOf(shape) / places, 1, static_cast<Wide>(UINT64_MAX)));
}

bool DelayedByHold(const DeviceProperties& properties, const KernelInfo& kernel,
                   const LaunchShape& shape) {
  const auto fitting = FittingBlocks(properties, kernel, shape);
  if (!fitting || fitting->alone == 0 || properties.sm_count <= 0) return true;
  if (fitting->beside_hold == fitting->alone) return false;
  if (RunTogether(kernel, shape)) return true;
  const Wide places = Wide{fitting->alone} * static_cast<uint64_t>(properties.sm_count);
  const Wide left = places - (fitting->alone - fitting->beside_hold);
  const auto waves = [&](Wide at_a_time) { return (BlocksOf(shape) + at_a_time - 1) / at_a_time; };
  return left == 0 || waves(left) > waves(places);
}

}  // namespace detshare
