// The plan of a graph for the software GPU, made when the graph is instantiated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device_graph.h"
#include "server/backends/soft/soft_conditions.h"
#include "server/backends/soft/soft_core.h"
#include "server/backends/soft/soft_grid.h"
#include "server/backends/soft/soft_launch.h"

namespace detshare::soft {

struct PlannedNode {
  GraphNode node;
  std::optional<GridRequest> grid;       // set for a kernel; each launch numbers it
  std::shared_ptr<Condition> condition;  // of a conditional node; null for others
};

// A graph or body, divided into queues. It is launched on queue 0.
struct GraphSchedule {
  struct Node {
    PlannedNode work;
    uint32_t queue = 0;
    std::vector<uint32_t> waits_for;  // nodes on other queues
    bool begins_queue = false;        // first on a queue other than 0; without `waits_for` it
                                      // waits for the graph's beginning
    bool awaited = false;             // by another queue
  };
  std::vector<Node> nodes;
  uint32_t queues = 1;
  std::vector<uint32_t> ends;  // the last nodes of queues other than 0
};

struct GraphPlan {
  Core* core = nullptr;
  SmRange sms;
  std::shared_ptr<SpaceState> space;
  std::vector<GraphSchedule> graphs;

  static absl::StatusOr<std::shared_ptr<GraphPlan>> Create(Core& core, SmRange sms,
                                                           std::shared_ptr<SpaceState> space,
                                                           const GraphDescription& description,
                                                           GraphPlace* refused);
  // Returns the errors that a launch of the node would return.
  absl::StatusOr<PlannedNode> PlanNode(const GraphNode& node) const;
};

}  // namespace detshare::soft
