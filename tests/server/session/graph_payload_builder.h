// Builds payloads of graphs for tests, as a client writes them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "proto/wire/copy.h"
#include "proto/wire/graph.h"
#include "proto/wire/launch.h"

namespace detshare {

class GraphBuilder {
 public:
  // Returns the node's index.
  uint32_t Node(uint32_t kind, const std::string& contents = "", uint32_t enabled = 1) {
    nodes_ += OneNode(kind, contents, enabled);
    return node_count++;
  }
  template <typename T>
  uint32_t NodeOf(uint32_t kind, const T& value, const std::string& rest = "") {
    return Node(kind, Bytes(value) + rest);
  }
  void Edge(uint32_t from, uint32_t to, uint8_t from_port = 0, uint8_t type = 0) {
    wire::GraphEdge edge{};
    edge.from = from;
    edge.to = to;
    edge.from_port = from_port;
    edge.type = type;
    edges_ += Bytes(edge);
    ++edge_count;
  }
  std::string Build() const {
    return Bytes(wire::GraphHeader{node_count, edge_count}) + nodes_ + edges_;
  }

  static std::string OneNode(uint32_t kind, const std::string& contents, uint32_t enabled = 1) {
    const wire::GraphNode head{kind, static_cast<uint32_t>(contents.size()), enabled, 0};
    return Bytes(head) + contents + std::string((8 - contents.size() % 8) % 8, '\0');
  }
  template <typename T>
  static std::string Bytes(const T& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  uint32_t node_count = 0, edge_count = 0;

 private:
  std::string nodes_, edges_;
};

}  // namespace detshare
