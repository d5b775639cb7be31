// Counts the operations that a coroutine submits, for reports.
//
// Threading: the coroutine's thread counts; get() from any thread. Counting costs a load and a
// store.
#pragma once

#include <atomic>
#include <cstdint>

namespace detshare {

class OperationCounters {
 public:
  struct Counts {
    uint64_t operations = 0;  // of all kinds: those below, events, waits and memory operations
    uint64_t launches = 0, graphs = 0, copies = 0, fills = 0;
    uint64_t kernels = 0;  // in launches and graphs
    uint64_t bytes_copied = 0;
    uint64_t migrations = 0;  // of streams from one partition to another
  };

  void AddLaunch() { Add(launches_, 1); }
  void AddGraph(uint64_t kernels) {
    Add(graphs_, 1);
    Add(graph_kernels_, kernels);
  }
  void AddCopy(uint64_t bytes) {
    Add(copies_, 1);
    Add(bytes_copied_, bytes);
  }
  void AddFill() { Add(fills_, 1); }
  // An operation of another kind.
  void AddOther() { Add(others_, 1); }
  void AddMigration() { Add(migrations_, 1); }

  // The counts may be of slightly different times.
  Counts get() const;

 private:
  // Relaxed: each counter is an independent figure and publishes nothing. Only one thread writes,
  // so no atomic addition is needed.
  using Counter = std::atomic<uint64_t>;
  static void Add(Counter& counter, uint64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  Counter launches_{0}, graphs_{0}, copies_{0}, fills_{0}, others_{0};
  Counter graph_kernels_{0}, bytes_copied_{0}, migrations_{0};
};

}  // namespace detshare
