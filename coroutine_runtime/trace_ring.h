// Records the events of a session's worker during a trace, until a reader fetches them.
//
//     off --Start--> on --Stop, or nobody fetches--> off
//
// A ring of fixed-size events with one writer, the worker, and one reader at a time. While it is
// off, which is usual, it costs the worker one load of a word that nobody writes, and has no
// memory. While it is on, an event costs a few stores, and the number of a name takes a lock.
// Events that find no room are counted and lost. If the reader stays away, the trace turns off once
// as many events are lost as the ring has places.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coroutine_runtime/trace_event.h"
#include "proto/mutex.h"

namespace detshare {

class TraceRing {
 public:
  static constexpr size_t kPlaces = 1 << 15;

  TraceRing() = default;
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;

  // ---- the reader, any thread
  void Start();
  void Stop();

  using Fetched = FetchedTrace;
  Fetched Fetch();

  // ---- the worker
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Adds an event while the ring is on; otherwise does nothing.
  void Add(const TraceEvent& event);
  // Returns the number of a name; 0 while the ring is off.
  uint32_t Name(std::string_view name);
  // Counts an event that could not be added.
  void Lose() {
    if (lost_.fetch_add(1, std::memory_order_relaxed) + 1 >= kPlaces) Stop();
  }

 private:
  static constexpr size_t kMaxNames = 1 << 16;

  std::atomic<bool> on_{false};  // relaxed: a few events more or less do not matter
  // Only the worker writes it. Release: the events before this index are in their places.
  std::atomic<uint64_t> written_{0};
  // Only the reader writes it. Release: the reader has copied the events before this index.
  std::atomic<uint64_t> read_{0};
  std::atomic<uint64_t> lost_{0};  // since the last fetch; relaxed
  // Release: publishes the places. They exist as long as the ring.
  std::atomic<TraceEvent*> places_{nullptr};

  Mutex mutex_;
  std::unique_ptr<TraceEvent[]> owned_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, uint32_t> names_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<uint32_t, std::string>> fresh_ ABSL_GUARDED_BY(mutex_);  // not fetched yet
};

}  // namespace detshare
