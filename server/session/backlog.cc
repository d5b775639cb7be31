#include "server/session/backlog.h"

#include <algorithm>
#include <utility>

#include "coroutine_runtime/device.h"

namespace detshare {

Backlog::Backlog(const std::vector<SessionDevice>& devices, uint64_t limit,
                 std::shared_ptr<Quota> tenant)
    : devices_(devices), limit_(limit), tenant_(std::move(tenant)), charge_(tenant_) {}

bool Backlog::HasRoom(size_t waits) {
  uint64_t held = waits * kWaitBytes;
  for (const SessionDevice& device : devices_) held += device.space->HeldBytes();
  peak_ = std::max(peak_, held);
  charge_.Set(held);
  if (held < kAlwaysAllowed) [[likely]]
    return true;
  return held < limit_ && (tenant_ == nullptr || tenant_->left() > 0);
}

uint64_t Backlog::TakePeak() { return std::exchange(peak_, 0); }

}  // namespace detshare
