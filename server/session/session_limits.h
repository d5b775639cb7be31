// What one session may ask for.
#pragma once

#include <cstdint>

#include "server/session/graph_payload.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

// Beyond it: CUDA_ERROR_OUT_OF_MEMORY.
struct SessionLimits {
  uint32_t contexts = 1024;
  uint32_t streams = 16384;
  uint32_t events = 1 << 20;
  uint32_t libraries = 65536;
  uint32_t kernels = 1 << 20;
  uint32_t arrays = 1 << 16;
  uint32_t image_objects = 1 << 18;          // textures and surfaces
  uint32_t calls = 1024;                     // control calls that wait at a time
  uint64_t image_bytes = uint64_t{8} << 30;  // of all loaded images together
  uint64_t log_bytes = 1 << 20;              // of a compiler's log
  uint32_t graphs = 65536;                   // executable ones
  uint64_t graph_bytes = uint64_t{1} << 30;  // of all their descriptions together
  uint32_t graph_conditions = 65536;
  GraphLimits graph;  // of one
  PinnedWindow::Limits pinned;
};

}  // namespace detshare
