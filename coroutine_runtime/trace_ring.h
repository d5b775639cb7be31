// What a session's worker notes down while a trace is taken, until somebody fetches it.
//
//     off --Start--> on --Stop, or nobody fetches--> off
//
// A ring of fixed-size events with one writer, the worker, and one reader at a time. Off, which is
// the rule, it costs the worker one load of a word that nobody writes, and has no memory. On, an
// event is a few stores, and finding the number of its name takes a lock. What finds no room is
// counted and lost. A reader that stays away switches the trace off: after as many lost events as
// the ring has places.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coroutine_runtime/trace_event.h"

namespace detshare {

class TraceRing {
 public:
  static constexpr size_t kPlaces = 1 << 15;

  TraceRing() = default;
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;

  // ---- whoever traces, any thread
  void Start();
  void Stop();

  using Fetched = FetchedTrace;
  Fetched Fetch();

  // ---- the worker
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // While it is on; otherwise nothing happens.
  void Add(const TraceEvent& event);
  // The number of a name. 0 while it is off.
  uint32_t Name(std::string_view name);
  // An event that could not be added.
  void Lose() {
    if (lost_.fetch_add(1, std::memory_order_relaxed) + 1 >= kPlaces) Stop();
  }

 private:
  static constexpr size_t kMaxNames = 1 << 16;

  std::atomic<bool> on_{false};  // relaxed: a few events more or less do not matter
  // Written by the worker only; release: the events up to here are in their places.
  std::atomic<uint64_t> written_{0};
  // Written by the reader only; release: it has copied the events up to here.
  std::atomic<uint64_t> read_{0};
  std::atomic<uint64_t> lost_{0};  // since the last fetch; relaxed
  // Release: publishes the places. They stay until the ring goes.
  std::atomic<TraceEvent*> places_{nullptr};
  std::unique_ptr<TraceEvent[]> owned_;  // guarded by mutex_

  std::mutex mutex_;  // guards what follows
  absl::flat_hash_map<std::string, uint32_t> names_;
  std::vector<std::pair<uint32_t, std::string>> fresh_;  // not fetched yet
};

}  // namespace detshare
