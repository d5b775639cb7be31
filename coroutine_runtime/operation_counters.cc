#include "coroutine_runtime/operation_counters.h"

namespace detshare {

OperationCounters::Counts OperationCounters::get() const {
  const auto load = [](const Counter& counter) { return counter.load(std::memory_order_relaxed); };
  Counts counts;
  counts.launches = load(launches_);
  counts.graphs = load(graphs_);
  counts.copies = load(copies_);
  counts.fills = load(fills_);
  counts.operations =
      counts.launches + counts.graphs + counts.copies + counts.fills + load(others_);
  counts.kernels = counts.launches + load(graph_kernels_);
  counts.bytes_copied = load(bytes_copied_);
  counts.migrations = load(migrations_);
  return counts;
}

}  // namespace detshare
