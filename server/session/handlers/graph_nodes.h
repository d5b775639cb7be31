// Translates a client's description of graphs to the devices' description. Every kernel, event,
// fence and address must belong to the session.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "coroutine_runtime/device_graph.h"
#include "server/session/graph_payload.h"

namespace detshare {
class Session;
}

namespace detshare::handlers {

// Resolves a node for the session's current device. The result keeps the objects that it names
// alive.
absl::StatusOr<GraphNode> ResolveNode(Session& session, const ParsedNode& node);

// On an error, sets `*refused` to the place of the node that caused it.
absl::StatusOr<GraphDescription> ResolveGraphs(Session& session,
                                               const std::vector<ParsedGraph>& graphs,
                                               GraphPlace* refused);

}  // namespace detshare::handlers
