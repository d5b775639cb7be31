#include "coroutine_runtime/shared_event.h"

#include <utility>

#include "policy/status_macros.h"

namespace detshare {

absl::StatusOr<std::shared_ptr<SharedEvent>> SharedEvent::Create(Device& device) {
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Marker> marker, device.CreateMarker(/*timed=*/false));
  std::shared_ptr<SharedEvent> event(new SharedEvent);
  const MutexLock lock(&event->mutex_);
  event->markers_.emplace(&device, std::move(marker));
  return event;
}

absl::StatusOr<std::shared_ptr<SharedRecording>> SharedEvent::Record(Device& device, Queue& queue,
                                                                     bool urgent) {
  auto recording = std::make_shared<SharedRecording>(urgent, /*marked=*/true);
  const MutexLock lock(&mutex_);
  std::unique_ptr<Marker>& marker = markers_[&device];
  if (marker == nullptr) {
    DETSHARE_ASSIGN_OR_RETURN(marker, device.CreateMarker(/*timed=*/false));
  }
  DETSHARE_RETURN_IF_ERROR(queue.Record(*marker));
  last_ = recording;
  device_ = &device;
  return recording;
}

std::shared_ptr<SharedRecording> SharedEvent::RecordKept(bool urgent) {
  auto recording = std::make_shared<SharedRecording>(urgent, /*marked=*/false);
  const MutexLock lock(&mutex_);
  last_ = recording;
  return recording;
}

std::shared_ptr<SharedRecording> SharedEvent::last() {
  const MutexLock lock(&mutex_);
  return last_;
}

absl::StatusOr<std::shared_ptr<SharedRecording>> SharedEvent::Wait(Queue& queue) {
  const MutexLock lock(&mutex_);
  if (last_ != nullptr && last_->marked()) {
    DETSHARE_RETURN_IF_ERROR(queue.Wait(*markers_[device_]));
  }
  return last_;
}

absl::StatusOr<bool> SharedEvent::Complete() {
  const MutexLock lock(&mutex_);
  if (last_ == nullptr || last_->complete()) return true;
  if (!last_->marked()) return false;
  const absl::StatusOr<bool> reached = device_->Reached(*markers_[device_]);
  if (reached.ok() && *reached) last_->Reach();
  return reached;
}

}  // namespace detshare
