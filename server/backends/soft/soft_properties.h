// What the software GPU says about itself: the replies of an H200, scaled by the options.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "coroutine_runtime/device.h"

namespace detshare::soft {

struct SoftDeviceOptions {
  std::string name = "DetShare Software GPU";
  int ordinal = 0;  // tells several devices of one daemon apart: UUID, PCI bus
  int sm_count = 132;
  int sm_group = 8;  // granularity of partitions
  uint64_t total_memory = 8ull << 30;
  int compute_major = 9, compute_minor = 0;
  int worker_threads = 0;  // 0: one for each core
  // Warp instructions that a block may execute before others get their turn.
  uint64_t quantum = 20'000;
  // Receives one line for every fault and every refused image. Any thread. Null: stderr.
  std::function<void(std::string_view)> log;
};

// InvalidArgument when the options describe no device.
absl::StatusOr<DeviceProperties> MakeProperties(const SoftDeviceOptions& options);

// Attribute `attribute` (CUdevice_attribute), 0 when there is none.
int AttributeOf(const DeviceProperties& properties, int attribute);

// 90 for compute capability 9.0.
int SmVersionOf(const DeviceProperties& properties);

}  // namespace detshare::soft
