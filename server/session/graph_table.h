// The executable graphs of one session.
//
// Threading: the session's worker.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/quota.h"
#include "proto/ring_abi.h"

namespace detshare {

class GpuGraph;
struct SessionDevice;
struct SessionLimits;

class GraphTable {
 public:
  // `tenant` counts the graphs of all of the tenant's sessions; null: no limit.
  GraphTable(const SessionLimits& limits, std::shared_ptr<Quota> tenant);
  ~GraphTable();

  // Call before a graph is created. `payload_bytes`: the size of its description.
  // CUDA_ERROR_INVALID_VALUE when the id is 0 or in use, CUDA_ERROR_OUT_OF_MEMORY at a limit.
  absl::Status CheckRoom(GraphId id, uint64_t payload_bytes) const;
  void Add(const SessionDevice& device, GraphId id, ContextId context,
           std::unique_ptr<GpuGraph> graph);
  // Applies `change` to a graph of the device and counts its new size. `payload_bytes`: the size of
  // the change's description.
  absl::Status Change(const SessionDevice& device, GraphId id, uint64_t payload_bytes,
                      absl::FunctionRef<absl::Status(GpuGraph&)> change);
  // nullptr when the device has no such graph.
  GpuGraph* Find(const SessionDevice& device, GraphId id) const;
  // Returns whether the device had the graph.
  bool Remove(const SessionDevice& device, GraphId id);
  // Ends the context's graphs and conditional handles.
  void RemoveContext(ContextId context);

  // Creates a conditional handle in the context, and returns its id. `sibling`: as in
  // Device::CreateGraphCondition(). CUDA_ERROR_OUT_OF_MEMORY at the limit.
  absl::StatusOr<uint64_t> CreateCondition(SessionDevice& device, ContextId context,
                                           uint32_t default_value, bool assign_default,
                                           uint64_t sibling);
  // Ends a handle. Does nothing if the device has none of that id.
  void EndCondition(SessionDevice& device, uint64_t id);

 private:
  struct LoadedGraph {
    std::unique_ptr<GpuGraph> graph;
    const SessionDevice* device = nullptr;
    ContextId context = 0;
  };

  // Sets the size of all graphs.
  void SetBytes(uint64_t bytes);
  absl::Status CheckBytes(uint64_t more) const;

  const SessionLimits& limits_;
  const std::shared_ptr<Quota> tenant_;
  QuotaCharge charge_;  // bytes_
  absl::flat_hash_map<GraphId, LoadedGraph> graphs_;
  uint64_t bytes_ = 0;  // sum of GpuGraph::bytes()
  // The contexts of the conditional handles.
  absl::flat_hash_map<std::pair<SessionDevice*, uint64_t>, ContextId> conditions_;
};

}  // namespace detshare
