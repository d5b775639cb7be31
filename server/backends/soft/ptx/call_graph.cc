#include "server/backends/soft/ptx/call_graph.h"

#include <algorithm>

namespace detshare::soft::ptx {
namespace {

// Finds the strongly connected components of the call graph with Tarjan's algorithm, callees first.
// A node behind the functions stands for an indirect call. It calls every function whose address is
// taken, so that these calls are one list and not one for each function with an indirect call.
class CallGraph {
 public:
  CallGraph(const std::vector<FunctionCode>& functions, const std::vector<uint32_t>& address_taken)
      : functions_(functions),
        address_taken_(address_taken),
        indirect_(static_cast<uint32_t>(functions.size())),
        nodes_(functions.size() + 1),
        totals_(functions.size() + 1) {}

  std::vector<CallTotals> Run() {
    for (uint32_t f = 0; f < indirect_; ++f) Visit(f);
    totals_.resize(functions_.size());
    return std::move(totals_);
  }

 private:
  struct Node {
    uint32_t number = 0;  // in the order of the visits, from 1; 0: not visited
    uint32_t lowest = 0;  // the lowest number that it is known to reach in its component
    bool open = false;    // its component is not complete
  };
  struct Step {
    uint32_t node;
    size_t next;  // callee
  };

  size_t CalleeCount(uint32_t node) const {
    if (node == indirect_) return address_taken_.size();
    return functions_[node].callees.size() + (functions_[node].has_indirect_calls ? 1 : 0);
  }
  uint32_t Callee(uint32_t node, size_t i) const {
    if (node == indirect_) return address_taken_[i];
    const std::vector<uint32_t>& callees = functions_[node].callees;
    return i < callees.size() ? callees[i] : indirect_;
  }

  void Open(uint32_t node) {
    nodes_[node] = {++visited_, visited_, true};
    open_.push_back(node);
    path_.push_back({node, 0});
    if (node == indirect_) return;
    const FunctionCode& f = functions_[node];
    totals_[node] = {0, f.register_pressure, f.dynamic_shared_align, f.uses_module_shared,
                     f.uses_reserved_shared};
  }

  // Until its component is complete, a node's local_bytes are those of its deepest callee.
  static void Add(const CallTotals& callee, CallTotals* to) {
    to->local_bytes = std::max(to->local_bytes, callee.local_bytes);
    to->register_pressure = std::max(to->register_pressure, callee.register_pressure);
    to->dynamic_shared_align = std::max(to->dynamic_shared_align, callee.dynamic_shared_align);
    to->uses_module_shared = to->uses_module_shared || callee.uses_module_shared;
    to->uses_reserved_shared = to->uses_reserved_shared || callee.uses_reserved_shared;
  }

  // Completes the component whose first visited node is `root`.
  void Close(uint32_t root) {
    const auto begin = std::find(open_.rbegin(), open_.rend(), root).base() - 1;
    CallTotals total;
    uint64_t own = 0;
    for (auto it = begin; it != open_.end(); ++it) {
      Add(totals_[*it], &total);
      if (*it != indirect_) own += functions_[*it].local_bytes;
    }
    total.local_bytes += own;
    for (auto it = begin; it != open_.end(); ++it) {
      totals_[*it] = total;
      nodes_[*it].open = false;
    }
    open_.erase(begin, open_.end());
  }

  void Visit(uint32_t first) {
    if (nodes_[first].number != 0) return;
    Open(first);
    while (!path_.empty()) {
      const uint32_t node = path_.back().node;
      if (path_.back().next == CalleeCount(node)) {
        path_.pop_back();
        if (nodes_[node].lowest == nodes_[node].number) Close(node);
        continue;
      }
      const uint32_t callee = Callee(node, path_.back().next);
      if (nodes_[callee].number == 0) {
        Open(callee);  // this step looks at it again when it is done
        continue;
      }
      ++path_.back().next;
      if (nodes_[callee].open) {
        nodes_[node].lowest = std::min(nodes_[node].lowest, nodes_[callee].lowest);
      } else {
        Add(totals_[callee], &totals_[node]);
      }
    }
  }

  const std::vector<FunctionCode>& functions_;
  const std::vector<uint32_t>& address_taken_;
  const uint32_t indirect_;
  std::vector<Node> nodes_;
  std::vector<CallTotals> totals_;
  std::vector<uint32_t> open_;  // nodes whose component is not complete
  std::vector<Step> path_;      // from the first node to the current one
  uint32_t visited_ = 0;
};

}  // namespace

std::vector<CallTotals> TotalsOfCalls(const std::vector<FunctionCode>& functions,
                                      const std::vector<uint32_t>& address_taken) {
  return CallGraph(functions, address_taken).Run();
}

}  // namespace detshare::soft::ptx
