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

}  // namespace

uint64_t WavesOf(const DeviceProperties& properties, const KernelInfo& kernel,
                 const LaunchShape& shape) {
  if (shape.cooperative || shape.cluster.x != 0) return 1;
  const uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  if (threads == 0 || properties.sm_count <= 0) return 1;
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
  if (fitting == UINT64_MAX) return 1;
  const unsigned __int128 blocks =
      static_cast<unsigned __int128>(shape.grid.x) * shape.grid.y * shape.grid.z;
  const unsigned __int128 waves = blocks / (static_cast<unsigned __int128>(fitting) *
                                            static_cast<uint64_t>(properties.sm_count));
  return static_cast<uint64_t>(
      std::clamp<unsigned __int128>(waves, 1, static_cast<unsigned __int128>(UINT64_MAX)));
}

}  // namespace detshare
