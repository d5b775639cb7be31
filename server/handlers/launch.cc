// Launches. The path of cuLaunchKernelEx neither allocates nor locks.
#include "server/handlers/common.h"
#include "proto/wire/launch.h"

namespace detshare::handlers {
namespace {

constexpr uint32_t kKnownFlags = wire::kLaunchCooperative | wire::kLaunchHasCluster |
                                 wire::kLaunchProgrammaticSerialization | wire::kLaunchHasPriority;

}  // namespace

void cuLaunchKernelEx(Session& session, const wire::cuLaunchKernelEx& args, Payload payload,
                      Reply& reply) {
  Kernel* const kernel = session.FindKernel(args.kernel);
  if (kernel == nullptr) [[unlikely]] {
    return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such kernel"));
  }
  if (payload.size() < kernel->info().parameter_bytes || (args.flags & ~kKnownFlags) != 0)
      [[unlikely]] {
    return reply.Send(CudaError(kCudaErrorInvalidValue, "too few parameters or unknown flags"));
  }
  LaunchShape shape;
  shape.grid = {args.grid[0], args.grid[1], args.grid[2]};
  shape.block = {args.block[0], args.block[1], args.block[2]};
  if ((args.flags & wire::kLaunchHasCluster) != 0)
    shape.cluster = {args.cluster[0], args.cluster[1], args.cluster[2]};
  shape.dynamic_shared_bytes = args.dynamic_shared_bytes;
  shape.cooperative = (args.flags & wire::kLaunchCooperative) != 0;
  shape.programmatic_serialization = (args.flags & wire::kLaunchProgrammaticSerialization) != 0;
  shape.has_priority = (args.flags & wire::kLaunchHasPriority) != 0;
  shape.priority = args.priority;
  reply.Send(session.device().coroutine->Launch(
      args.stream, *kernel, shape,
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(payload.data()), payload.size())));
}

void cuKernelSetAttribute(Session& session, const wire::cuKernelSetAttribute& args, Payload,
                          Reply& reply) {
  Kernel* const kernel = session.FindKernel(args.kernel);
  if (kernel == nullptr) return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such kernel"));
  reply.Send(kernel->SetAttribute(static_cast<int>(args.attribute & 0x7FFFFFFF), args.value));
}

}  // namespace detshare::handlers
