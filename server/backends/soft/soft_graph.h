// Graphs of the software GPU.
//
// A launch puts the nodes into queues: each node follows a node that it depends on in that node's
// queue, if no other does already, else it begins a queue of its own; the queue of the launch is
// the first one. What else it depends on it waits for as a stream waits for an event. So branches
// that do not depend on each other run at the same time, in virtual time, too.
//
// A conditional node is a task on a queue of its own, which looks at the condition and submits what
// is to be run behind itself:
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

// One thread, the one that launches.
class SoftGraph final : public Graph {
 public:
  // `refused` as in Device::InstantiateGraph.
  static absl::StatusOr<std::unique_ptr<SoftGraph>> Create(Core& core, SmRange sms,
                                                           std::shared_ptr<SpaceState> space,
                                                           const GraphDescription& description,
                                                           GraphPlace* refused);
  ~SoftGraph() override;

  absl::Status Replace(GraphPlace place, const GraphNode& now) override;
  // With an error nothing was submitted.
  absl::Status Launch(const std::shared_ptr<QueueState>& queue, absl::Span<const uint64_t> values);

 private:
  explicit SoftGraph(std::shared_ptr<GraphPlan> plan);

  // Shared with the conditional nodes of launches that run, which see it as it was.
  std::shared_ptr<GraphPlan> plan_;
  // Of the latest launch.
  std::shared_ptr<QueueState> last_queue_;
  std::shared_ptr<Point> last_end_;
};

}  // namespace detshare::soft
