// Computes in which share of the last second a session had work on a device: the share of the
// samples at which it had work.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>

#include "coroutine_runtime/device.h"

namespace detshare {

// The caller adds samples at equal distances of time. One thread uses it.
class BusySampler {
 public:
  static constexpr size_t kSamples = 64;  // the number of samples that are remembered
  using SessionOnDevice = std::pair<uint64_t, const Device*>;

  // Adds a sample. `busy` are the sessions that have work queued or running at this moment, each
  // with a device.
  void Add(std::set<SessionOnDevice> busy);
  void Clear() { samples_.clear(); }
  size_t size() const { return samples_.size(); }

  // Returns the percentage of the samples at which any of `sessions` had work on `device`, rounded
  // to the nearest; 0 without samples.
  uint32_t Percent(const std::set<uint64_t>& sessions, const Device* device) const;

 private:
  std::deque<std::set<SessionOnDevice>> samples_;
};

}  // namespace detshare
