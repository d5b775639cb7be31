// Executable graphs.
#include "proto/wire/graph.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/gpu_graph.h"
#include "policy/status_macros.h"
#include "server/session/graph_table.h"
#include "server/session/handlers/common.h"
#include "server/session/handlers/graph_nodes.h"
#include "server/session/session_limits.h"

namespace detshare::handlers {
namespace {

constexpr int kGraphExecUpdateFailure = 910;  // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
constexpr uint32_t kAssignDefault = 1;        // CU_GRAPH_COND_ASSIGN_DEFAULT
// CUgraphInstantiate_flags
constexpr uint32_t kAutoFreeOnLaunch = 1, kUpload = 2, kUseNodePriority = 8;

absl::Status NoSuchGraph() {
  return CudaError(kCudaErrorInvalidHandle, "no such executable graph");
}

template <typename Body>
void SendWith(Reply& reply, const absl::Status& status, const Body& body) {
  reply.SendBytes(status, {reinterpret_cast<const uint8_t*>(&body), sizeof(body)});
}

absl::StatusOr<GraphDescription> Describe(Session& session, Payload payload, uint32_t graph_count,
                                          GraphPlace* refused) {
  DETSHARE_ASSIGN_OR_RETURN(const std::vector<ParsedGraph> parsed,
                            ParseGraphs(payload, graph_count, session.limits().graph));
  return ResolveGraphs(session, parsed, refused);
}

absl::Status AsUpdateFailure(const GpuGraph::Update& update) {
  if (update.result == GpuGraph::UpdateResult::kSuccess) return absl::OkStatus();
  return CudaError(kGraphExecUpdateFailure, "the graphs differ too much");
}

}  // namespace

void cuGraphInstantiateWithParams(Session& session, const wire::cuGraphInstantiateWithParams& args,
                                  Payload payload, Reply& reply) {
  GraphPlace refused;
  const auto instantiate = [&]() -> absl::Status {
    if ((args.flags & ~(kAutoFreeOnLaunch | kUpload | kUseNodePriority)) != 0) {
      return CudaError(kCudaErrorNotSupported, "graphs that kernels launch are not supported");
    }
    DETSHARE_RETURN_IF_ERROR(session.UseContext(args.context));
    DETSHARE_RETURN_IF_ERROR(session.graphs().CheckRoom(args.graph, payload.size()));
    DETSHARE_ASSIGN_OR_RETURN(GraphDescription description,
                              Describe(session, payload, args.graph_count, &refused));
    description.use_node_priority = (args.flags & kUseNodePriority) != 0;
    DETSHARE_ASSIGN_OR_RETURN(
        std::unique_ptr<GpuGraph> graph,
        GpuGraph::Create(*session.device().coroutine, std::move(description), &refused));
    session.graphs().Add(session.device(), args.graph, args.context, std::move(graph));
    return absl::OkStatus();
  };
  const absl::Status status = instantiate();
  SendWith(reply, status, wire::cuGraphInstantiateWithParams_Reply{refused.graph, refused.node});
}

void cuGraphExecUpdate_v2(Session& session, const wire::cuGraphExecUpdate_v2& args, Payload payload,
                          Reply& reply) {
  GpuGraph::Update update{GpuGraph::UpdateResult::kError, {}};
  const auto become = [&](GpuGraph& graph) -> absl::Status {
    DETSHARE_ASSIGN_OR_RETURN(GraphDescription description,
                              Describe(session, payload, args.graph_count, &update.place));
    description.use_node_priority = graph.description().use_node_priority;
    update = graph.Become(std::move(description));
    return AsUpdateFailure(update);
  };
  const absl::Status status =
      session.graphs().Change(session.device(), args.graph, payload.size(), become);
  SendWith(reply, status,
           wire::cuGraphExecUpdate_v2_Reply{static_cast<uint32_t>(update.result),
                                            update.place.graph, update.place.node, 0});
}

void cuGraphExecNodeSetParams(Session& session, const wire::cuGraphExecNodeSetParams& args,
                              Payload payload, Reply& reply) {
  reply.Send(session.graphs().Change(
      session.device(), args.graph, payload.size(), [&](GpuGraph& graph) -> absl::Status {
        DETSHARE_ASSIGN_OR_RETURN(const ParsedNode parsed, ParseGraphNode(payload));
        if (parsed.kind == wire::kNodeConditional) {
          return InvalidValue("a conditional node cannot change after its instantiation");
        }
        DETSHARE_ASSIGN_OR_RETURN(GraphNode node, ResolveNode(session, parsed));
        return graph.Replace({args.index, args.node}, std::move(node));
      }));
}

void cuGraphNodeSetEnabled(Session& session, const wire::cuGraphNodeSetEnabled& args, Payload,
                           Reply& reply) {
  GpuGraph* const graph = session.graphs().Find(session.device(), args.graph);
  if (graph == nullptr) return reply.Send(NoSuchGraph());
  if (args.enabled > 1) return reply.Send(InvalidValue("`enabled` is neither 0 nor 1"));
  reply.Send(graph->SetEnabled({args.index, args.node}, args.enabled == 1));
}

void cuGraphLaunch(Session& session, const wire::cuGraphLaunch& args, Payload payload,
                   Reply& reply) {
  GpuGraph* const graph = session.graphs().Find(session.device(), args.graph);
  if (graph == nullptr) [[unlikely]]
    return reply.Send(NoSuchGraph());
  if (payload.size() / sizeof(uint64_t) < args.value_count ||
      args.value_count > wire::kMaxGraphValues) [[unlikely]] {
    return reply.Send(InvalidValue("more values than the record holds or a graph may have"));
  }
  absl::InlinedVector<uint64_t, 32> values(args.value_count);
  if (!values.empty()) {
    std::memcpy(values.data(), payload.data(), values.size() * sizeof(uint64_t));
  }
  reply.Send(graph->Launch(args.stream, values));
}

void cuGraphUpload(Session& session, const wire::cuGraphUpload& args, Payload, Reply& reply) {
  GpuGraph* const graph = session.graphs().Find(session.device(), args.graph);
  reply.Send(graph == nullptr ? NoSuchGraph() : graph->Upload(args.stream));
}

void cuGraphExecDestroy(Session& session, const wire::cuGraphExecDestroy& args, Payload,
                        Reply& reply) {
  reply.Send(session.graphs().Remove(session.device(), args.graph) ? absl::OkStatus()
                                                                   : NoSuchGraph());
}

void cuGraphConditionalHandleCreate(Session& session,
                                    const wire::cuGraphConditionalHandleCreate& args, Payload,
                                    Reply& reply) {
  if (args.flags == wire::kEndConditional) {
    session.graphs().EndCondition(session.device(), args.sibling);
    return reply.Send(absl::OkStatus());
  }
  if (args.flags > kAssignDefault) return reply.Send(InvalidValue("unknown flags"));
  if (absl::Status known = session.UseContext(args.context); !known.ok()) return reply.Send(known);
  const absl::StatusOr<uint64_t> handle =
      session.graphs().CreateCondition(session.device(), args.context, args.default_value,
                                       args.flags == kAssignDefault, args.sibling);
  if (!handle.ok()) return reply.Send(handle.status());
  reply.Send(wire::cuGraphConditionalHandleCreate_Reply{*handle});
}

}  // namespace detshare::handlers
