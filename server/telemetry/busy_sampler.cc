#include "server/telemetry/busy_sampler.h"

#include <algorithm>

namespace detshare {

void BusySampler::Add(std::set<SessionOnDevice> busy) {
  samples_.push_back(std::move(busy));
  if (samples_.size() > kSamples) samples_.pop_front();
}

uint32_t BusySampler::Percent(const std::set<uint64_t>& sessions, const Device* device) const {
  if (samples_.empty()) return 0;
  const auto busy = std::count_if(samples_.begin(), samples_.end(), [&](const auto& sample) {
    return std::any_of(sessions.begin(), sessions.end(), [&](uint64_t session) {
      return sample.contains({session, device});
    });
  });
  return static_cast<uint32_t>((100 * busy + samples_.size() / 2) / samples_.size());
}

}  // namespace detshare
