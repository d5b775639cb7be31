// The limits on the objects of one session.
#pragma once

#include <cstdint>

#include "server/session/graph_payload.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {

// A request beyond a limit returns CUDA_ERROR_OUT_OF_MEMORY, a control call beyond `calls`
// CUDA_ERROR_NOT_PERMITTED.
struct SessionLimits {
  uint32_t contexts = 1024;
  uint32_t streams = 16384;
  uint32_t events = 1 << 20;
  uint32_t libraries = 65536;
  uint32_t kernels = 1 << 20;
  uint32_t arrays = 1 << 16;
  uint32_t image_objects = 1 << 18;  // textures and surfaces
  uint32_t calls = 1024;             // control calls that wait at the same time
  // Host memory that queued work of the ring may take. Beyond it, the client waits. The driver's
  // own queues hold some thousand operations of a stream.
  uint64_t queued_bytes = uint64_t{64} << 20;
  uint64_t image_bytes = uint64_t{8} << 30;  // total of all loaded images
  uint64_t log_bytes = 1 << 20;              // of a compiler's log
  uint32_t graphs = 65536;                   // executable graphs
  uint64_t graph_bytes = uint64_t{1} << 30;  // total of all descriptions
  uint32_t graph_conditions = 65536;
  GraphLimits graph;  // of one payload
  PinnedWindow::Limits pinned;
};

}  // namespace detshare
