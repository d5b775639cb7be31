// Kernels. Transport: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

struct cuKernelSetAttribute {
  KernelId kernel;
  uint32_t attribute;  // CUfunction_attribute
  int32_t value;
  uint32_t reserved;
};

enum LaunchFlags : uint32_t {
  kLaunchCooperative = 1,
  kLaunchHasCluster = 2,                 // the launch sets cluster[]
  kLaunchProgrammaticSerialization = 4,  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  kLaunchHasPriority = 8,
  kLaunchHasHints = 16,  // LaunchHints follow the parameters
};
// Payload: the parameter buffer, in the layout of the kernel's parameters, then LaunchHints if
// given.
struct cuLaunchKernelEx {
  StreamId stream;
  KernelId kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3];
  uint32_t dynamic_shared_bytes;
  uint32_t flags;  // LaunchFlags
  int32_t priority;
};

}  // namespace detshare::wire
