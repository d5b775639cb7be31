// The configuration of a launch, and the services that it uses.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "server/backends/soft/ptx/host_services.h"

namespace detshare::soft::ptx {

class ImageTable;

// When a function's instructions become machine code (native_code.h). The results do not depend on it.
enum class NativeUse : uint8_t {
  kNever,   // in this launch
  kWarm,    // when it has run a few times
  kAtOnce,  // when it first runs
};

struct LaunchConfig {
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  std::array<uint32_t, 3> cluster{1, 1, 1};  // divides grid in each dimension
  uint32_t dynamic_shared_bytes = 0;
  uint32_t max_shared_bytes = 227 * 1024;  // the maximum of static and dynamic together
  uint32_t stack_bytes_per_thread =
      1024;                 // CU_LIMIT_STACK_SIZE; a kernel whose frames need more gets more
  uint32_t sm_count = 132;  // %nsmid
  uint64_t grid_id = 0;     // %gridid
  bool cooperative = false;
  NativeUse native = NativeUse::kWarm;
  // For cooperative launches: the memory that grid.sync() uses. It has at least 16 bytes, is
  // zeroed, writable, aligned to 8 and the same for all blocks. The kernel may access [address,
  // address + bytes) in addition to the memory that the MemoryGuard allows.
  uint64_t grid_workspace_address = 0;
  uint32_t grid_workspace_bytes = 0;
  uint64_t start_time_ns = 0;   // %globaltimer at the first cycle of a unit
  uint64_t start_cycle = 0;     // %clock64 at the first cycle of a unit
  std::vector<uint8_t> params;  // laid out as KernelInfo::params says; at least param_bytes long
};

struct LaunchServices {
  const MemoryGuard* guard = nullptr;     // required
  OutputSink* output = nullptr;           // null: output is dropped
  DeviceHeap* heap = nullptr;             // null: device malloc() returns null
  const ImageTable* images = nullptr;     // null: the tenant has no textures and surfaces
  GraphConditions* conditions = nullptr;  // null: the tenant has no conditions
  DeviceRuntime* runtime = nullptr;       // null: kernels launch no kernels
};

}  // namespace detshare::soft::ptx
