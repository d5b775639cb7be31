#include "server/session/handlers/graph_nodes.h"

#include <utility>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_array.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "policy/status_macros.h"
#include "proto/wire/copy.h"
#include "proto/wire/stream_memory_op.h"
#include "server/session/code_table.h"
#include "server/session/handlers/memory_op.h"
#include "server/session/handlers/requests.h"
#include "server/session/session_images.h"

namespace detshare::handlers {
namespace {

absl::StatusOr<GraphStep> ResolveKernel(Session& session, const wire::cuLaunchKernelEx& args,
                                        Payload parameters) {
  KernelStep step;
  step.kernel = session.code().ShareKernel(session.device(), args.kernel);
  if (step.kernel == nullptr) return CudaError(kCudaErrorInvalidHandle, "no such kernel");
  DETSHARE_RETURN_IF_ERROR(ReadShape(session, args, *step.kernel, parameters, &step.shape));
  const auto* bytes = reinterpret_cast<const std::byte*>(parameters.data());
  step.parameters.assign(bytes, bytes + step.kernel->info().parameter_bytes);
  return step;
}

absl::StatusOr<GraphStep> ResolveCopy(Session& session, const wire::cuMemcpy3DAsync_v2& args) {
  for (const wire::PitchedLocation& side : {args.destination, args.source}) {
    if (side.location.space != wire::kAddress && side.location.space != wire::kArray)
      return InvalidValue("a copy node with a side that is not an address or array");
  }
  CopyRequest request;
  SessionDevice* device = nullptr;
  if (absl::Status read = ReadCopy(session, args, {}, &request, &device); !read.ok()) return read;
  // An empty copy stays a copy of width 0, so that the client can later give the node bytes to
  // copy.
  if (device == nullptr) request.width = 0;
  if ((device != nullptr && device != &session.device()) || request.destination_space != nullptr ||
      request.source_space != nullptr) {
    return CudaError(kCudaErrorNotSupported, "a copy node for memory of another device");
  }
  return request;
}

absl::StatusOr<GraphStep> ResolveFill(Session& session, const wire::cuMemsetD2D32Async& args) {
  FillRequest request;
  SessionDevice* device = nullptr;
  DETSHARE_RETURN_IF_ERROR(ReadFill(session, args, &request, &device));
  if (device == nullptr) request.width = 0;
  if (device != nullptr && device != &session.device())
    return CudaError(kCudaErrorNotSupported, "a fill node for memory of another device");
  return request;
}

absl::StatusOr<Fence*> FindFence(Session& session, FenceIndex index) {
  Fence* fence = nullptr;
  if (!session.FindFence(index, &fence) || fence == nullptr) return InvalidValue("no such fence");
  return fence;
}

absl::StatusOr<GraphStep> ResolveStep(Session& session, const ParsedNode& node) {
  Payload rest;
  switch (node.kind) {
    case wire::kNodeEmpty:
      return GraphStep();
    case wire::kNodeKernel: {
      wire::cuLaunchKernelEx args;
      ContentsOf(node, &args, &rest);
      return ResolveKernel(session, args, rest);
    }
    case wire::kNodeCopy: {
      wire::cuMemcpy3DAsync_v2 args;
      ContentsOf(node, &args, &rest);
      return ResolveCopy(session, args);
    }
    case wire::kNodeFill: {
      wire::cuMemsetD2D32Async args;
      ContentsOf(node, &args, &rest);
      return ResolveFill(session, args);
    }
    case wire::kNodeSignal:
    case wire::kNodeWait: {
      wire::GraphFence args;
      ContentsOf(node, &args, &rest);
      DETSHARE_ASSIGN_OR_RETURN(Fence* const fence, FindFence(session, args.fence));
      if (node.kind == wire::kNodeSignal) return SignalStep{fence};
      return WaitStep{fence};
    }
    case wire::kNodeEventRecord:
    case wire::kNodeEventWait: {
      wire::GraphEvent args;
      ContentsOf(node, &args, &rest);
      bool* recorded = nullptr;
      DETSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Marker> marker,
                                session.device().coroutine->ShareEvent(args.event, &recorded));
      if (node.kind == wire::kNodeEventRecord) return RecordStep{std::move(marker), recorded};
      return WaitMarkerStep{std::move(marker)};
    }
    case wire::kNodeMemoryOps: {
      wire::GraphMemoryOps args;
      ContentsOf(node, &args, &rest);
      if (args.flags != 0 || rest.size() != args.count * sizeof(wire::StreamMemoryOp)) {
        return InvalidValue("a node with a wrong number of operations on memory");
      }
      MemoryOps operations;
      DETSHARE_RETURN_IF_ERROR(ReadMemoryOps(session, rest, args.count, &operations));
      return MemoryOpsStep{{operations.begin(), operations.end()}};
    }
    case wire::kNodeConditional: {
      wire::GraphConditional args;
      ContentsOf(node, &args, &rest);
      if (args.type > static_cast<uint32_t>(ConditionalStep::Type::kSwitch)) {
        return InvalidValue("an unknown type of conditional node");
      }
      const auto type = static_cast<ConditionalStep::Type>(args.type);
      if ((type == ConditionalStep::Type::kWhile && args.body_count != 1) ||
          (type == ConditionalStep::Type::kIf && args.body_count > 2)) {
        return InvalidValue("a number of bodies that the conditional node cannot have");
      }
      return ConditionalStep{args.handle, type, args.first_body, args.body_count};
    }
  }
  return InvalidValue("an unknown kind of node");
}

// Returns the array that one side of a copy names, or null when the side is an address.
// ResolveStep() has checked that the array exists.
std::shared_ptr<Array> ArrayOf(Session& session, const wire::PitchedLocation& side) {
  if (side.location.space != wire::kArray) return nullptr;
  return session.images().FindArray(&session.device(), wire::PositionOf(side).array);
}

}  // namespace

absl::StatusOr<GraphNode> ResolveNode(Session& session, const ParsedNode& node) {
  DETSHARE_ASSIGN_OR_RETURN(GraphStep step, ResolveStep(session, node));
  GraphNode resolved{std::move(step), node.enabled};
  if (node.kind == wire::kNodeCopy) {
    wire::cuMemcpy3DAsync_v2 args;
    Payload rest;
    ContentsOf(node, &args, &rest);
    resolved.arrays = {ArrayOf(session, args.destination), ArrayOf(session, args.source)};
  }
  return resolved;
}

absl::StatusOr<GraphDescription> ResolveGraphs(Session& session,
                                               const std::vector<ParsedGraph>& graphs,
                                               GraphPlace* refused) {
  GraphDescription description;
  for (uint32_t graph = 0; graph < graphs.size(); ++graph) {
    GraphBody& body = description.graphs.emplace_back();
    body.nodes.reserve(graphs[graph].nodes.size());
    for (uint32_t node = 0; node < graphs[graph].nodes.size(); ++node) {
      absl::StatusOr<GraphNode> resolved = ResolveNode(session, graphs[graph].nodes[node]);
      if (!resolved.ok()) {
        *refused = {graph, node};
        return resolved.status();
      }
      body.nodes.push_back(*std::move(resolved));
    }
    for (const wire::GraphEdge& edge : graphs[graph].edges) {
      body.edges.push_back({edge.from, edge.to, edge.from_port, edge.to_port, edge.type});
    }
  }
  return description;
}

}  // namespace detshare::handlers
