// Reads requests that come as records of a stream and as nodes of graphs. Checks that they are
// valid and use only the session's objects.
#pragma once

#include <cstring>

#include "coroutine_runtime/device.h"
#include "proto/wire/copy.h"
#include "proto/wire/launch.h"
#include "server/session/handlers/common.h"
#include "server/session/handlers/launch_hints.h"

namespace detshare::handlers {

// `payload` holds the parameters and then the hints. It must hold all parameters of the kernel.
inline absl::Status ReadShape(Session& session, const wire::cuLaunchKernelEx& args,
                              const Kernel& kernel, Payload payload, LaunchShape* shape) {
  constexpr uint32_t kKnownFlags = wire::kLaunchCooperative | wire::kLaunchHasCluster |
                                   wire::kLaunchProgrammaticSerialization |
                                   wire::kLaunchHasPriority | wire::kLaunchHasHints;
  if (payload.size() < kernel.info().parameter_bytes || (args.flags & ~kKnownFlags) != 0)
      [[unlikely]] {
    return CudaError(kCudaErrorInvalidValue, "too few parameters or unknown flags");
  }
  shape->grid = {args.grid[0], args.grid[1], args.grid[2]};
  shape->block = {args.block[0], args.block[1], args.block[2]};
  if ((args.flags & wire::kLaunchHasCluster) != 0)
    shape->cluster = {args.cluster[0], args.cluster[1], args.cluster[2]};
  shape->dynamic_shared_bytes = args.dynamic_shared_bytes;
  shape->cooperative = (args.flags & wire::kLaunchCooperative) != 0;
  shape->programmatic_serialization = (args.flags & wire::kLaunchProgrammaticSerialization) != 0;
  shape->has_priority = (args.flags & wire::kLaunchHasPriority) != 0;
  shape->priority = args.priority;
  if ((args.flags & wire::kLaunchHasHints) == 0) [[likely]]
    return absl::OkStatus();
  const size_t place = (uint64_t{kernel.info().parameter_bytes} + 7) / 8 * 8;
  wire::LaunchHints named;
  if (place > payload.size() || payload.size() - place < sizeof(named))
    return CudaError(kCudaErrorInvalidValue, "a launch whose payload lacks its hints");
  std::memcpy(&named, payload.data() + place, sizeof(named));
  return ReadHints(session, named, &shape->hints);
}

// Set `*device` to the device that does the work: the current one, or another one whose memory is
// filled or exchanges bytes with the host. Null when there is nothing to copy or fill. `payload`:
// the record's payload, which may hold the source of a copy.
absl::Status ReadCopy(Session& session, const wire::cuMemcpy3DAsync_v2& args, Payload payload,
                      CopyRequest* request, SessionDevice** device);
absl::Status ReadFill(Session& session, const wire::cuMemsetD2D32Async& args, FillRequest* request,
                      SessionDevice** device);

}  // namespace detshare::handlers
