// The executable graphs of one session.
//
// Threading: the session's worker.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "proto/ring_abi.h"

namespace detshare {

class GpuGraph;
struct SessionDevice;
struct SessionLimits;

class GraphTable {
 public:
  explicit GraphTable(const SessionLimits& limits);
  ~GraphTable();

  // `payload_bytes`: of what describes one, before it is made.
  absl::Status CheckRoom(GraphId id, uint64_t payload_bytes) const;
  void Add(const SessionDevice& device, GraphId id, ContextId context,
           std::unique_ptr<GpuGraph> graph);
  // A change by `payload_bytes` of description, of a graph of the device.
  absl::Status Change(const SessionDevice& device, GraphId id, uint64_t payload_bytes,
                      absl::FunctionRef<absl::Status(GpuGraph&)> change);
  // Of the device, else nullptr.
  GpuGraph* Find(const SessionDevice& device, GraphId id) const;
  // Of the device. Whether it was there.
  bool Remove(const SessionDevice& device, GraphId id);
  void RemoveContext(ContextId context);
  // One more of the conditions of graphs, which stay as long as the session.
  absl::Status CountCondition();

 private:
  struct LoadedGraph {
    std::unique_ptr<GpuGraph> graph;
    const SessionDevice* device = nullptr;
    ContextId context = 0;
  };

  const SessionLimits& limits_;
  absl::flat_hash_map<GraphId, LoadedGraph> graphs_;
  uint64_t bytes_ = 0;  // of all descriptions
  uint32_t conditions_ = 0;
};

}  // namespace detshare
