// Occupancy calls whose results the shim does not compute itself.
#include "proto/wire/occupancy.h"

#include "coroutine_runtime/device.h"
#include "server/session/code_table.h"
#include "server/session/handlers/common.h"

namespace detshare::handlers {
namespace {

absl::Status NoKernel() { return CudaError(kCudaErrorInvalidHandle, "no such kernel"); }

}  // namespace

void cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    Session& session, const wire::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags& args,
    Payload, Reply& reply) {
  Kernel* const kernel = session.code().FindKernel(session.device(), args.kernel);
  if (kernel == nullptr) return reply.Send(NoKernel());
  const absl::StatusOr<int> blocks =
      kernel->MaxActiveBlocks({args.block_size, args.dynamic_shared_bytes, args.flags});
  if (!blocks.ok()) return reply.Send(blocks.status());
  reply.Send(wire::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_Reply{*blocks, 0});
}

void cuOccupancyAvailableDynamicSMemPerBlock(
    Session& session, const wire::cuOccupancyAvailableDynamicSMemPerBlock& args, Payload,
    Reply& reply) {
  Kernel* const kernel = session.code().FindKernel(session.device(), args.kernel);
  if (kernel == nullptr) return reply.Send(NoKernel());
  const absl::StatusOr<uint64_t> bytes =
      kernel->AvailableDynamicShared(args.blocks, args.block_size);
  if (!bytes.ok()) return reply.Send(bytes.status());
  reply.Send(wire::cuOccupancyAvailableDynamicSMemPerBlock_Reply{*bytes});
}

void cuOccupancyMaxPotentialClusterSize(Session& session,
                                        const wire::cuOccupancyMaxPotentialClusterSize& args,
                                        Payload, Reply& reply) {
  Kernel* const kernel = session.code().FindKernel(session.device(), args.kernel);
  if (kernel == nullptr) return reply.Send(NoKernel());
  LaunchShape shape;
  shape.grid = {args.grid[0], args.grid[1], args.grid[2]};
  shape.block = {args.block[0], args.block[1], args.block[2]};
  shape.dynamic_shared_bytes = args.dynamic_shared_bytes;
  const absl::StatusOr<int> size = kernel->MaxPotentialClusterSize(shape);
  if (!size.ok()) return reply.Send(size.status());
  reply.Send(wire::cuOccupancyMaxPotentialClusterSize_Reply{*size, 0});
}

void cuOccupancyMaxActiveClusters(Session& session, const wire::cuOccupancyMaxActiveClusters& args,
                                  Payload, Reply& reply) {
  Kernel* const kernel = session.code().FindKernel(session.device(), args.kernel);
  if (kernel == nullptr) return reply.Send(NoKernel());
  LaunchShape shape;
  shape.grid = {args.grid[0], args.grid[1], args.grid[2]};
  shape.block = {args.block[0], args.block[1], args.block[2]};
  shape.cluster = {args.cluster[0], args.cluster[1], args.cluster[2]};
  shape.dynamic_shared_bytes = args.dynamic_shared_bytes;
  const absl::StatusOr<int> clusters = kernel->MaxActiveClusters(shape);
  if (!clusters.ok()) return reply.Send(clusters.status());
  reply.Send(wire::cuOccupancyMaxActiveClusters_Reply{*clusters, 0});
}

}  // namespace detshare::handlers
