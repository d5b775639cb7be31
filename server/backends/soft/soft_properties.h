// The properties that the software GPU reports: those of an H200, scaled by the options.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "coroutine_runtime/device.h"

namespace detshare::soft {

struct SoftDeviceOptions {
  std::string name = "DetShare Software GPU";
  int ordinal = 0;  // distinguishes the devices of a daemon by UUID and PCI bus
  int sm_count = 132;
  int sm_group = 8;  // granularity of partitions
  uint64_t total_memory = 8ull << 30;
  int compute_major = 9, compute_minor = 0;
  bool preemption = true;  // whether the device has an urgent time-slice group
  int worker_threads = 0;  // 0: one for each core
  // The number of warp instructions that a block executes before other work gets its turn.
  uint64_t quantum = 20'000;
  std::shared_ptr<ManagedMemory>
      managed_memory;  // of all devices of the daemon; null: there is none
  // Processes with the same file share the card's memory; "": this process has it alone.
  std::string memory_file;
  // For tests: kernels run on when their session has ended, as on a real GPU.
  bool kernels_outlive_sessions = false;
  // Gets a line for every fault and every image that does not load. Called on any thread. Null: the
  // lines go to stderr.
  std::function<void(std::string_view)> log;
};

// InvalidArgument when the options describe no device.
absl::StatusOr<DeviceProperties> MakeProperties(const SoftDeviceOptions& options);

// Returns the attribute `attribute` (CUdevice_attribute), or 0 when the device does not have it.
int AttributeOf(const DeviceProperties& properties, int attribute);

// 90 for compute capability 9.0.
int SmVersionOf(const DeviceProperties& properties);

}  // namespace detshare::soft
