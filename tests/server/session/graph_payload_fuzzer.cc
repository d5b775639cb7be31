// Graphs from the payload of a client (graph_payload.h). The input: one byte, the number of graphs,
// then the payload.
#include <string>

#include "coroutine_runtime/status_cuda.h"
#include "server/session/graph_payload.h"
#include "tests/fuzzing/check.h"
#include "tests/server/session/graph_payload_builder.h"

namespace detshare {
namespace {

// Small, so that inputs reach them.
constexpr GraphLimits kLimits = {.graphs = 8, .nesting = 3, .nodes = 64, .edges = 128};

void CheckError(const absl::Status& status) {
  const int result = CudaResultOf(status);
  FUZZ_CHECK(result == kCudaErrorInvalidValue || result == kCudaErrorOutOfMemory);
  FUZZ_CHECK(!status.message().empty());
}

void CheckNode(const ParsedNode& node, std::span<const uint8_t> payload) {
  FUZZ_CHECK(node.kind <= wire::kNodeConditional);
  if (node.contents.empty()) return;
  FUZZ_CHECK(node.contents.data() >= payload.data());
  FUZZ_CHECK(node.contents.data() + node.contents.size() <= payload.data() + payload.size());
}

std::string ContentsOf(const ParsedNode& node) {
  return std::string(node.contents.begin(), node.contents.end());
}

// The payload of the same graphs.
std::string Print(const std::vector<ParsedGraph>& graphs) {
  std::string payload;
  for (const ParsedGraph& graph : graphs) {
    GraphBuilder builder;
    for (const ParsedNode& node : graph.nodes)
      builder.Node(node.kind, ContentsOf(node), node.enabled ? 1 : 0);
    for (const wire::GraphEdge& edge : graph.edges)
      builder.Edge(edge.from, edge.to, edge.from_port, edge.type);
    payload += builder.Build();
  }
  return payload;
}

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void CheckGraphs(std::span<const uint8_t> payload, uint32_t count) {
  const absl::StatusOr<std::vector<ParsedGraph>> graphs = ParseGraphs(payload, count, kLimits);
  if (!graphs.ok()) return CheckError(graphs.status());
  FUZZ_CHECK(graphs->size() == count && count <= kLimits.graphs);
  size_t nodes = 0, edges = 0;
  std::vector<int> bodies(count, 0);
  for (size_t index = 0; index < count; ++index) {
    const ParsedGraph& graph = (*graphs)[index];
    nodes += graph.nodes.size();
    edges += graph.edges.size();
    for (const ParsedNode& node : graph.nodes) {
      CheckNode(node, payload);
      wire::GraphConditional conditional;
      std::span<const uint8_t> rest;
      if (node.kind != wire::kNodeConditional) continue;
      FUZZ_CHECK(detshare::ContentsOf(node, &conditional, &rest) && rest.empty());
      FUZZ_CHECK(conditional.first_body > index && conditional.body_count > 0);
      for (uint32_t body = 0; body < conditional.body_count; ++body)
        ++bodies.at(conditional.first_body + body);
    }
    for (size_t i = 0; i < graph.edges.size(); ++i) {
      const wire::GraphEdge& edge = graph.edges[i];
      FUZZ_CHECK(edge.from < edge.to && edge.to < graph.nodes.size());
      if (i == 0) continue;
      const wire::GraphEdge& before = graph.edges[i - 1];
      FUZZ_CHECK(std::pair(before.from, before.to) < std::pair(edge.from, edge.to));
    }
  }
  FUZZ_CHECK(nodes <= kLimits.nodes && edges <= kLimits.edges);
  for (size_t index = 0; index < count; ++index) FUZZ_CHECK(bodies[index] == (index == 0 ? 0 : 1));

  const std::string printed = Print(*graphs);
  FUZZ_CHECK(printed.size() == payload.size());
  const absl::StatusOr<std::vector<ParsedGraph>> again =
      ParseGraphs(BytesOf(printed), count, kLimits);
  FUZZ_CHECK(again.ok() && Print(*again) == printed);
}

void CheckOneNode(std::span<const uint8_t> payload) {
  const absl::StatusOr<ParsedNode> node = ParseGraphNode(payload);
  if (!node.ok()) return CheckError(node.status());
  CheckNode(*node, payload);
  FUZZ_CHECK(GraphBuilder::OneNode(node->kind, ContentsOf(*node), node->enabled ? 1 : 0) ==
             std::string(payload.begin(), payload.end()));
}

}  // namespace
}  // namespace detshare

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  detshare::CheckGraphs({data + 1, size - 1}, data[0]);
  detshare::CheckOneNode({data + 1, size - 1});
  return 0;
}
