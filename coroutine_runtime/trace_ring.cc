#include "coroutine_runtime/trace_ring.h"

namespace detshare {

void TraceRing::Start() {
  const MutexLock lock(&mutex_);
  if (owned_ == nullptr) {
    owned_ = std::make_unique<TraceEvent[]>(kPlaces);
    places_.store(owned_.get(), std::memory_order_release);
  }
  // Drops the events that are left of an earlier trace.
  read_.store(written_.load(std::memory_order_acquire), std::memory_order_release);
  lost_.store(0, std::memory_order_relaxed);
  fresh_.clear();
  for (const auto& [name, number] : names_) fresh_.emplace_back(number, name);
  on_.store(true, std::memory_order_relaxed);
}

void TraceRing::Stop() { on_.store(false, std::memory_order_relaxed); }

TraceRing::Fetched TraceRing::Fetch() {
  Fetched fetched;
  const MutexLock lock(&mutex_);
  if (owned_ == nullptr) return fetched;
  const uint64_t end = written_.load(std::memory_order_acquire);
  const uint64_t begin = read_.load(std::memory_order_relaxed);
  fetched.events.reserve(end - begin);
  for (uint64_t i = begin; i < end; ++i) fetched.events.push_back(owned_[i % kPlaces]);
  read_.store(end, std::memory_order_release);
  fetched.names.swap(fresh_);
  fetched.lost = lost_.exchange(0, std::memory_order_relaxed);
  return fetched;
}

void TraceRing::Add(const TraceEvent& event) {
  TraceEvent* const places = places_.load(std::memory_order_acquire);
  if (!on() || places == nullptr) return;
  const uint64_t at = written_.load(std::memory_order_relaxed);
  // Acquire: the reader is done with the place.
  if (at - read_.load(std::memory_order_acquire) >= kPlaces) {
    Lose();
    return;
  }
  places[at % kPlaces] = event;
  written_.store(at + 1, std::memory_order_release);
}

uint32_t TraceRing::Name(std::string_view name) {
  if (!on()) return 0;
  const MutexLock lock(&mutex_);
  const auto found = names_.find(std::string(name));
  if (found != names_.end()) return found->second;
  if (names_.size() >= kMaxNames) return 0;
  const uint32_t number = static_cast<uint32_t>(names_.size()) + 1;
  names_.emplace(name, number);
  fresh_.emplace_back(number, std::string(name));
  return number;
}

}  // namespace detshare
