#include "proto/wire/copy.h"
#include "proto/wire/launch.h"
#include "tests/fuzzing/write_seeds.h"
#include "tests/server/session/graph_payload_builder.h"

namespace detshare {
namespace {

wire::GraphConditional Conditional(uint32_t first_body, uint32_t bodies) {
  return {1, 0, first_body, bodies, 0};
}

// A node of each kind that a root may have, and edges between them.
std::string EachKind() {
  GraphBuilder builder;
  builder.Node(wire::kNodeEmpty);
  builder.NodeOf(wire::kNodeKernel, wire::cuLaunchKernelEx{}, "parameters");
  builder.NodeOf(wire::kNodeKernel, wire::cuLaunchKernelEx{});
  builder.NodeOf(wire::kNodeCopy, wire::cuMemcpy3DAsync_v2{});
  builder.Node(wire::kNodeFill, std::string(sizeof(wire::cuMemsetD2D32Async), '\1'), 0);
  builder.NodeOf(wire::kNodeSignal, wire::GraphFence{1, 0});
  builder.NodeOf(wire::kNodeWait, wire::GraphFence{2, 0});
  builder.NodeOf(wire::kNodeEventRecord, wire::GraphEvent{1, 0});
  builder.NodeOf(wire::kNodeEventWait, wire::GraphEvent{1, 0});
  builder.NodeOf(wire::kNodeMemoryOps, wire::GraphMemoryOps{1, 0}, std::string(24, '\0'));
  builder.Edge(1, 2, 1, 1);
  builder.Edge(0, 1);
  builder.Edge(2, 3);
  builder.Edge(2, 4, 2);
  for (uint32_t to = 5; to < builder.node_count; ++to) builder.Edge(to - 1, to);
  return '\1' + builder.Build();
}

// Conditional nodes in the bodies of others.
std::string Nested() {
  GraphBuilder root, outer, inner, leaf;
  root.NodeOf(wire::kNodeConditional, Conditional(1, 2));
  root.NodeOf(wire::kNodeKernel, wire::cuLaunchKernelEx{});
  root.Edge(0, 1);
  outer.NodeOf(wire::kNodeConditional, Conditional(3, 1));
  inner.NodeOf(wire::kNodeFill, wire::cuMemsetD2D32Async{});
  leaf.Node(wire::kNodeEmpty);
  return '\4' + root.Build() + outer.Build() + inner.Build() + leaf.Build();
}

}  // namespace
}  // namespace detshare

int main(int argc, char** argv) {
  using detshare::GraphBuilder;
  return detshare::fuzzing::WriteSeeds(
      argc, argv,
      {{"each_kind", detshare::EachKind()},
       {"empty", '\1' + GraphBuilder().Build()},
       {"nested", detshare::Nested()},
       {"one_node", '\1' + GraphBuilder::OneNode(detshare::wire::kNodeSignal, std::string(8, 0))}});
}
