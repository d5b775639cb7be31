#include "server/sessions/load_board.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace detshare {
namespace {

constexpr int32_t kUnknown = -1;
constexpr double kThousand = 1000;

int32_t Thousandths(double share) {
  return share >= 0 ? static_cast<int32_t>(std::lround(std::min(share, 1.0) * kThousand))
                    : kUnknown;
}

double ShareOf(int32_t thousandths) {
  return thousandths >= 0 ? std::min(thousandths / kThousand, 1.0) : kUnknown;
}

}  // namespace

void LoadBoard::Publish(const std::vector<Load>& devices) {
  if (own_ == nullptr) return;
  for (size_t i = 0; i < std::min(devices.size(), EnginePage::kMaxDevices); ++i) {
    LoadWords& words = own_->devices[i].load;
    for (size_t at = 0; at < words.sessions.size(); ++at) {
      LoadWords::Session& session = words.sessions[at];
      if (at >= devices[i].sessions.size()) {
        session.state.store(LoadWords::kNone, std::memory_order_relaxed);
        continue;
      }
      const policy::PlacementRequest& there = devices[i].sessions[at];
      session.memory_bound.store(Thousandths(there.memory_bound), std::memory_order_relaxed);
      session.load.store(Thousandths(there.load), std::memory_order_relaxed);
      session.state.store(there.HasObjective() ? LoadWords::kHasObjective : LoadWords::kThere,
                          std::memory_order_relaxed);
    }
    words.promised.store(devices[i].promised, std::memory_order_relaxed);
    words.placed_at.store(devices[i].placed_at, std::memory_order_relaxed);
  }
}

std::vector<uint64_t> LoadBoard::AddOthers(std::vector<policy::DeviceLoad>* devices) const {
  std::vector<uint64_t> promised(devices->size(), 0);
  if (peers_ == nullptr) return promised;
  peers_->ForEach([&](uint64_t, const EnginePage& page) {
    for (size_t i = 0; i < std::min(devices->size(), EnginePage::kMaxDevices); ++i) {
      policy::DeviceLoad& device = (*devices)[i];
      const LoadWords& words = page.devices[i].load;
      for (const LoadWords::Session& session : words.sessions) {
        const uint32_t state = session.state.load(std::memory_order_relaxed);
        if (state == LoadWords::kNone) continue;
        policy::PlacementRequest& there = device.sessions.emplace_back();
        if (state == LoadWords::kHasObjective)
          there.tenant.tenant_class = policy::TenantClass::kLatency;
        there.memory_bound = ShareOf(session.memory_bound.load(std::memory_order_relaxed));
        there.load = ShareOf(session.load.load(std::memory_order_relaxed));
      }
      // No process can promise more than the device has.
      const uint64_t more = std::min(words.promised.load(std::memory_order_relaxed), device.memory);
      promised[i] = std::min(promised[i] + more, device.memory);
      device.placed_at =
          std::max(device.placed_at, words.placed_at.load(std::memory_order_relaxed));
    }
  });
  return promised;
}

}  // namespace detshare
