// Launches. The path of cuLaunchKernelEx neither allocates nor locks.
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "server/session/code_table.h"
#include "server/session/handlers/common.h"
#include "server/session/handlers/requests.h"

namespace detshare::handlers {

void cuLaunchKernelEx(Session& session, const wire::cuLaunchKernelEx& args, Payload payload,
                      Reply& reply) {
  Kernel* const kernel = session.code().FindKernel(session.device(), args.kernel);
  if (kernel == nullptr) [[unlikely]] {
    return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such kernel"));
  }
  LaunchShape shape;
  if (absl::Status read = ReadShape(session, args, *kernel, payload, &shape); !read.ok())
      [[unlikely]]
    return reply.Send(read);
  reply.Send(session.device().coroutine->Launch(
      args.stream, *kernel, shape,
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(payload.data()), payload.size())));
}

void cuKernelSetAttribute(Session& session, const wire::cuKernelSetAttribute& args, Payload,
                          Reply& reply) {
  Kernel* const kernel = session.code().FindKernel(session.device(), args.kernel);
  if (kernel == nullptr) return reply.Send(CudaError(kCudaErrorInvalidHandle, "no such kernel"));
  reply.Send(kernel->SetAttribute(static_cast<int>(args.attribute & 0x7FFFFFFF), args.value));
}

}  // namespace detshare::handlers
