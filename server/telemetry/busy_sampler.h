// Which share of the last second a session had work on a device: counts the samples at which it
// had.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>

#include "coroutine_runtime/device.h"

namespace detshare {

// One thread. Samples are taken at equal distances by whoever has one.
class BusySampler {
 public:
  static constexpr size_t kSamples = 64;  // that are remembered
  using SessionOnDevice = std::pair<uint64_t, const Device*>;

  // `busy`: those who have work queued or running at this moment.
  void Add(std::set<SessionOnDevice> busy);
  void Clear() { samples_.clear(); }
  size_t size() const { return samples_.size(); }

  // Percent of the samples at which any of `sessions` had work on `device`, rounded to the nearest;
  // 0 without samples.
  uint32_t Percent(const std::set<uint64_t>& sessions, const Device* device) const;

 private:
  std::deque<std::set<SessionOnDevice>> samples_;
};

}  // namespace detshare
