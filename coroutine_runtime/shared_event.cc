#include "coroutine_runtime/shared_event.h"

#include <utility>

#include "policy/status_macros.h"

namespace detshare {

absl::StatusOr<std::shared_ptr<SharedEvent>> SharedEvent::Create(Device& device) {
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Marker> marker, device.CreateMarker(/*timed=*/false));
  return std::shared_ptr<SharedEvent>(new SharedEvent(device, std::move(marker)));
}

absl::Status SharedEvent::Record(Queue& queue, bool urgent, uint64_t* number) {
  const MutexLock lock(&mutex_);
  DETSHARE_RETURN_IF_ERROR(queue.Record(*marker_));
  recorded_urgent_ = urgent;
  *number = recorded_.load(std::memory_order_relaxed) + 1;
  recorded_.store(*number, std::memory_order_release);
  return absl::OkStatus();
}

void SharedEvent::Reach(uint64_t number) {
  uint64_t seen = reached_.load(std::memory_order_relaxed);
  while (seen < number && !reached_.compare_exchange_weak(seen, number, std::memory_order_release,
                                                          std::memory_order_relaxed)) {
  }
}

bool SharedEvent::RecordedUrgent() {
  const MutexLock lock(&mutex_);
  return recorded_urgent_;
}

absl::StatusOr<bool> SharedEvent::Complete() {
  const MutexLock lock(&mutex_);
  const uint64_t last = recorded();
  if (reached_.load(std::memory_order_acquire) >= last) return true;
  const absl::StatusOr<bool> reached = device_.Reached(*marker_);
  if (reached.ok() && *reached) Reach(last);
  return reached;
}

absl::Status SharedEvent::Wait(Queue& queue) {
  const MutexLock lock(&mutex_);
  return recorded_.load(std::memory_order_relaxed) == 0 ? absl::OkStatus() : queue.Wait(*marker_);
}

}  // namespace detshare
