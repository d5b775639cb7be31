// Graphs of the software GPU.
//
// A launch puts the nodes into queues. A node goes into the queue of a node that it depends on, if
// no other node follows that node there yet. Otherwise it begins a new queue. The first queue is
// that of the launch. A node waits for its other dependencies as a stream waits for an event. So
// branches that do not depend on each other run at the same time, also in virtual time.
//
// A conditional node is a task on a queue of its own. The task reads the condition and submits the
// body and the next decision to this queue, behind itself:
//
//   queue of the graph    ... --+  point "reached"        wait for point "over" +-- ...
//   queue of the node           +--> [task][body][task][body] ... [over] -------+
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coroutine_runtime/device_graph.h"
#include "server/backends/soft/soft_core.h"
#include "server/backends/soft/soft_grid.h"
#include "server/backends/soft/soft_launch.h"

namespace detshare::soft {

struct GraphPlan;

// Used by one thread, which is the one that launches.
class SoftGraph final : public Graph {
 public:
  // `refused` has the meaning that it has in Device::InstantiateGraph.
  static absl::StatusOr<std::unique_ptr<SoftGraph>> Create(Core& core, SmRange sms,
                                                           std::shared_ptr<SpaceState> space,
                                                           const GraphDescription& description,
                                                           GraphPlace* refused);
  ~SoftGraph() override;

  absl::Status Replace(GraphPlace place, const GraphNode& now) override;
  // When it returns an error, it has submitted nothing.
  absl::Status Launch(const std::shared_ptr<QueueState>& queue, absl::Span<const uint64_t> values);

 private:
  explicit SoftGraph(std::shared_ptr<GraphPlan> plan);

  // Shared with the conditional nodes of launches that still run. They use the plan that they were
  // launched with.
  std::shared_ptr<GraphPlan> plan_;
  // The queue and the end of the latest launch.
  std::shared_ptr<QueueState> last_queue_;
  std::shared_ptr<Point> last_end_;
};

}  // namespace detshare::soft
