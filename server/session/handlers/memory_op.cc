#include "server/session/handlers/memory_op.h"

#include <cstring>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "policy/status_macros.h"
#include "proto/wire/stream_memory_op.h"

namespace detshare::handlers {
namespace {

constexpr uint32_t kWriteFlags = 0;        // CU_STREAM_WRITE_VALUE_DEFAULT
constexpr uint32_t kBarrierFlags = 1;      // CU_STREAM_MEMORY_BARRIER_TYPE_GPU
constexpr int kCanFlushRemoteWrites = 98;  // CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES

bool CanFlush(Session& session) {
  const auto& attributes = session.device().device->properties().attributes;
  const auto found = attributes.find(kCanFlushRemoteWrites);
  return found != attributes.end() && found->second != 0;
}

absl::Status Check(Session& session, const MemoryOp& operation) {
  uint32_t known = 0;
  switch (operation.operation) {
    case MemoryOp::kWait32:
    case MemoryOp::kWait64:
      known = MemoryOp::kConditionMask | MemoryOp::kWaitFlush;
      break;
    case MemoryOp::kWrite32:
    case MemoryOp::kWrite64:
      known = kWriteFlags;
      break;
    case MemoryOp::kBarrier:
      known = kBarrierFlags;
      break;
    case MemoryOp::kFlushRemoteWrites:
      break;
    default:
      return InvalidValue("an unknown operation on memory");
  }
  if ((operation.flags & ~known) != 0)
    return InvalidValue("unknown flags of an operation on memory");
  const bool flushes = operation.operation == MemoryOp::kFlushRemoteWrites ||
                       (operation.is_wait() && (operation.flags & MemoryOp::kWaitFlush) != 0);
  if (flushes && !CanFlush(session))
    return CudaError(kCudaErrorNotSupported, "the device cannot flush remote writes");
  const uint64_t bytes = static_cast<uint64_t>(operation.bytes());
  if (bytes == 0) return absl::OkStatus();
  if (operation.address % bytes != 0) return InvalidValue("a word that is not aligned");
  // A word that the operation only waits for must be writable as well, because the daemon writes it
  // when the session ends before the wait.
  if (!session.device().space->Contains(operation.address, bytes, /*write=*/true))
    return InvalidValue("a word that the session may not write");
  if (operation.is_wait() && !operation.Satisfying().has_value())
    return InvalidValue("a wait for a condition that no value satisfies");
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadMemoryOps(Session& session, Payload payload, uint32_t count,
                           MemoryOps* operations) {
  if (count > wire::kMaxStreamMemoryOps || payload.size() < count * sizeof(wire::StreamMemoryOp))
    return InvalidValue("more operations on memory than the record holds");
  for (uint32_t i = 0; i < count; ++i) {
    wire::StreamMemoryOp named;
    std::memcpy(&named, payload.data() + i * sizeof(named), sizeof(named));
    const MemoryOp operation{named.operation, named.flags, named.address, named.value};
    DETSHARE_RETURN_IF_ERROR(Check(session, operation));
    operations->push_back(operation);
  }
  return absl::OkStatus();
}

void cuStreamBatchMemOp_v2(Session& session, const wire::cuStreamBatchMemOp_v2& args,
                           Payload payload, Reply& reply) {
  MemoryOps operations;
  if (absl::Status status = ReadMemoryOps(session, payload, args.count, &operations); !status.ok())
    return reply.Send(status);
  reply.Send(session.device().coroutine->MemoryOps(args.stream, operations));
}

}  // namespace detshare::handlers
