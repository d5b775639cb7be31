#include "client_shim/work/graph/dot.h"

#include <cstdarg>
#include <cstdio>

#include "client_shim/code/libraries.h"
#include "client_shim/work/graph/graph_memory.h"

namespace detshare::shim {
namespace {

void Print(std::string* text, const char* format, ...) __attribute__((format(printf, 2, 3)));
void Print(std::string* text, const char* format, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(buffer, sizeof(buffer), format, arguments);
  va_end(arguments);
  if (length > 0) text->append(buffer, std::min<size_t>(length, sizeof(buffer) - 1));
}

const char* NameOfKernel(const KernelNode& node) {
  const Kernel* kernel =
      node.function != nullptr ? FindFunction(node.function) : FindKernel(node.kernel);
  return kernel == nullptr || kernel->name == nullptr ? "?" : kernel->name;
}

// Describes what a node does, in one line of its label. Names of kernels have no characters that a
// label must escape.
struct Describe {
  std::string* text;
  bool details;

  void operator()(const EmptyNode&) const { *text += "EMPTY"; }
  void operator()(const KernelNode& node) const {
    Print(text, "KERNEL\\n%s", NameOfKernel(node));
    if (!details) return;
    Print(text, "\\n\\<\\<\\<%u,%u,%u;%u,%u,%u;%u\\>\\>\\>", node.launch.grid[0],
          node.launch.grid[1], node.launch.grid[2], node.launch.block[0], node.launch.block[1],
          node.launch.block[2], node.launch.shared_bytes);
  }
  void operator()(const CopyNode& node) const {
    const auto side = [](const PitchedPlace& place) {
      return place.place.pageable() ? "pageable" : place.place.host != 0 ? "pinned" : "device";
    };
    Print(text, "MEMCPY\\n%s to %s", side(node.from), side(node.to));
    if (details)
      Print(text, "\\n%lu x %lu x %lu", static_cast<unsigned long>(node.width),
            static_cast<unsigned long>(node.height), static_cast<unsigned long>(node.depth));
  }
  void operator()(const FillNode& node) const {
    *text += "MEMSET";
    if (details)
      Print(text, "\\n0x%lx = 0x%x\\n%lu x %lu of %u bytes",
            static_cast<unsigned long>(node.address), node.description.value,
            static_cast<unsigned long>(node.description.width),
            static_cast<unsigned long>(node.description.height), node.description.elementSize);
  }
  void operator()(const HostNode& node) const {
    *text += "HOST";
    if (details) Print(text, "\\n%p (%p)", reinterpret_cast<void*>(node.function), node.data);
  }
  void operator()(const ChildNode&) const { *text += "GRAPH"; }
  void operator()(const EventRecordNode& node) const {
    *text += "EVENT_RECORD";
    if (details) Print(text, "\\n%p", static_cast<void*>(node.event.handle));
  }
  void operator()(const EventWaitNode& node) const {
    *text += "EVENT_WAIT";
    if (details) Print(text, "\\n%p", static_cast<void*>(node.event.handle));
  }
  void operator()(const AllocNode& node) const {
    *text += "MEM_ALLOC";
    if (details)
      Print(text, "\\n0x%lx: %lu bytes", static_cast<unsigned long>(node.memory->address),
            static_cast<unsigned long>(node.memory->bytes));
  }
  void operator()(const FreeNode& node) const {
    *text += "MEM_FREE";
    if (details) Print(text, "\\n0x%lx", static_cast<unsigned long>(node.memory->address));
  }
  void operator()(const MemoryOpsNode& node) const {
    Print(text, "BATCH_MEM_OP\\n%zu", node.operations.size());
  }
  void operator()(const ConditionalNode& node) const {
    static constexpr const char* kTypes[] = {"IF", "WHILE", "SWITCH"};
    Print(text, "CONDITIONAL\\n%s", kTypes[node.type]);
  }
};

class Writer {
 public:
  explicit Writer(uint32_t flags) : flags_(flags) {}

  std::string Write(const Graph& graph) {
    text_ = "digraph dot {\n";
    Body(graph, "  ");
    text_ += "}\n";
    return std::move(text_);
  }

 private:
  void Body(const Graph& graph, const std::string& indent) {
    const uint32_t number = next_graph_++;
    Print(&text_, "%ssubgraph cluster_%u {\n", indent.c_str(), number);
    const std::string inner = indent + "  ";
    Print(&text_, "%slabel=\"graph_%u\"\n", inner.c_str(), number);
    const auto name = [number](const GraphNode& node) {
      return "graph_" + std::to_string(number) + "_node_" + std::to_string(node.position);
    };
    for (const auto& node : graph.nodes) {
      text_ += inner + "\"" + name(*node) + "\"[shape=\"box\" label=\"";
      Print(&text_, "%u\\n", node->position);
      std::visit(Describe{&text_, flags_ != 0}, node->body);
      if ((flags_ & (CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0)
        Print(&text_, "\\nnode handle: 0x%lx", static_cast<unsigned long>(node->handle));
      text_ += "\"]\n";
    }
    for (const auto& node : graph.nodes) {
      for (const GraphEdge& edge : node->dependents) {
        text_ += inner + "\"" + name(*node) + "\" -> \"" + name(*edge.node) + "\"";
        if (edge.data.type != 0 || edge.data.from_port != 0) {
          Print(&text_, "[label=\"from_port %u type %u\"]", edge.data.from_port, edge.data.type);
        }
        text_ += "\n";
      }
    }
    for (const auto& node : graph.nodes) {
      if (const auto* child = std::get_if<ChildNode>(&node->body)) Body(*child->graph, inner);
      if (const auto* conditional = std::get_if<ConditionalNode>(&node->body)) {
        for (const auto& body : conditional->bodies) Body(*body, inner);
      }
    }
    text_ += indent + "}\n";
  }

  const uint32_t flags_;
  std::string text_;
  uint32_t next_graph_ = 0;
};

}  // namespace

std::string DotText(const Graph& graph, uint32_t flags) { return Writer(flags).Write(graph); }

bool WriteDotFile(const char* path, const std::string& text) {
  FILE* file = fopen(path, "we");
  if (file == nullptr) return false;
  const bool written = fwrite(text.data(), 1, text.size(), file) == text.size();
  return fclose(file) == 0 && written;
}

}  // namespace detshare::shim
