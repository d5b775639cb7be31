// From what a client says about graphs to what devices understand: every kernel, event, fence and
// address is looked up among what the session owns.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device_graph.h"
#include "server/session/graph_payload.h"

namespace detshare {
class Session;
}

namespace detshare::handlers {

// Of the session's current device. The node keeps alive what it names.
absl::StatusOr<GraphNode> ResolveNode(Session& session, const ParsedNode& node);

// With an error `*refused` is the node.
absl::StatusOr<GraphDescription> ResolveGraphs(Session& session,
                                               const std::vector<ParsedGraph>& graphs,
                                               GraphPlace* refused);

}  // namespace detshare::handlers
