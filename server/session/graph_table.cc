#include "server/session/graph_table.h"

#include <utility>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/gpu_graph.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/session/session_device.h"
#include "server/session/session_limits.h"

namespace detshare {

GraphTable::GraphTable(const SessionLimits& limits, std::shared_ptr<Quota> tenant)
    : limits_(limits), tenant_(std::move(tenant)), charge_(tenant_) {}

GraphTable::~GraphTable() = default;

absl::Status GraphTable::CheckRoom(GraphId id, uint64_t payload_bytes) const {
  if (id == 0 || graphs_.contains(id)) {
    return CudaError(kCudaErrorInvalidValue, "the id of a new graph is 0 or in use");
  }
  if (graphs_.size() >= limits_.graphs) return CudaError(kCudaErrorOutOfMemory, "too many graphs");
  return CheckBytes(payload_bytes);
}

void GraphTable::Add(const SessionDevice& device, GraphId id, ContextId context,
                     std::unique_ptr<GpuGraph> graph) {
  SetBytes(bytes_ + graph->bytes());
  graphs_.insert_or_assign(id, LoadedGraph{std::move(graph), &device, context});
}

absl::Status GraphTable::Change(const SessionDevice& device, GraphId id, uint64_t payload_bytes,
                                absl::FunctionRef<absl::Status(GpuGraph&)> change) {
  GpuGraph* const graph = Find(device, id);
  if (graph == nullptr) return CudaError(kCudaErrorInvalidHandle, "no such executable graph");
  if (absl::Status room = CheckBytes(payload_bytes); !room.ok()) return room;
  const uint64_t others = bytes_ - graph->bytes();
  const absl::Status status = change(*graph);
  SetBytes(others + graph->bytes());
  return status;
}

void GraphTable::SetBytes(uint64_t bytes) {
  bytes_ = bytes;
  charge_.Set(bytes);
}

absl::Status GraphTable::CheckBytes(uint64_t more) const {
  if (bytes_ + more > limits_.graph_bytes)
    return CudaError(kCudaErrorOutOfMemory, "the graphs are too large");
  return Quota::Take(tenant_, more).status();  // counted when the graph is there
}

GpuGraph* GraphTable::Find(const SessionDevice& device, GraphId id) const {
  const auto found = graphs_.find(id);
  if (found == graphs_.end() || found->second.device != &device) return nullptr;
  return found->second.graph.get();
}

bool GraphTable::Remove(const SessionDevice& device, GraphId id) {
  const auto found = graphs_.find(id);
  if (found == graphs_.end() || found->second.device != &device) return false;
  SetBytes(bytes_ - found->second.graph->bytes());
  graphs_.erase(found);
  return true;
}

void GraphTable::RemoveContext(ContextId context) {
  absl::erase_if(graphs_, [&](const auto& entry) {
    if (entry.second.context != context) return false;
    SetBytes(bytes_ - entry.second.graph->bytes());
    return true;
  });
  absl::erase_if(conditions_, [context](const auto& entry) {
    if (entry.second != context) return false;
    const auto& [device, id] = entry.first;
    device->device->EndGraphCondition(*device->space, id);
    return true;
  });
}

absl::StatusOr<uint64_t> GraphTable::CreateCondition(SessionDevice& device, ContextId context,
                                                     uint32_t default_value, bool assign_default,
                                                     uint64_t sibling) {
  if (conditions_.size() >= limits_.graph_conditions) {
    return CudaError(kCudaErrorOutOfMemory, "too many conditional handles");
  }
  const absl::StatusOr<uint64_t> id =
      device.device->CreateGraphCondition(*device.space, default_value, assign_default, sibling);
  if (id.ok()) conditions_.insert_or_assign({&device, *id}, context);
  return id;
}

void GraphTable::EndCondition(SessionDevice& device, uint64_t id) {
  if (conditions_.erase({&device, id}) != 0) device.device->EndGraphCondition(*device.space, id);
}

}  // namespace detshare
