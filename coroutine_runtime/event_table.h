// The events of one session on one device.
//
// An event has a marker of the device. Recording an event moves its marker, so the event always
// stands for its last recording.
//
// Ownership: a marker handed out by Share() keeps its event alive after Destroy(). The markers of
// other destroyed events are kept for later events, because creating one is slow. A marker may be
// reused while a queue waits for it, because each wait is for the recording before the wait.
//
// Threading: the coroutine's thread. Lifetime: ends before the device. Create() and Destroy() may
// allocate; the other calls do not. No call waits for the GPU.
//
// Errors: unknown ids give CUDA_ERROR_INVALID_HANDLE. Other errors are the device's.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/fence_pool.h"
#include "coroutine_runtime/object_ids.h"

namespace detshare {

struct LogicalEvent {
  ContextId context = 0;
  bool timed = false;
  bool recorded = false;
  // Until this point is reached, work before the recording may wait for the client or another
  // session.
  FencePoint awaited;
  std::unique_ptr<Marker> marker;
};

class EventTable {
 public:
  EventTable(Device& device, const AddressSpace& space) : device_(device), space_(space) {}
  EventTable(const EventTable&) = delete;
  EventTable& operator=(const EventTable&) = delete;

  // CUDA_ERROR_INVALID_VALUE if an id is 0 or the event's id is in use; CUDA_ERROR_OUT_OF_MEMORY if
  // the session has too many events.
  absl::Status Create(EventId id, ContextId context, bool timed);
  absl::Status Destroy(EventId id);
  void DestroyAllOf(ContextId context);

  // The event is valid until it is destroyed.
  absl::StatusOr<LogicalEvent*> Find(EventId id) const;
  // Returns the event's marker, and sets `*recorded` to a flag to be set when the marker is
  // recorded. The flag lives as long as the marker.
  absl::StatusOr<std::shared_ptr<Marker>> Share(EventId id, bool** recorded) const;

  // CUDA_ERROR_NOT_READY while the event's last recording is not reached. Returns the fault of the
  // space if there is one.
  absl::Status Query(EventId id) const;
  // CUDA_ERROR_NOT_READY while either event is not reached; CUDA_ERROR_INVALID_HANDLE if an event
  // was not recorded or is not timed.
  absl::StatusOr<float> ElapsedMilliseconds(EventId start, EventId end) const;

 private:
  Device& device_;
  const AddressSpace& space_;
  absl::flat_hash_map<EventId, std::shared_ptr<LogicalEvent>> events_;  // graphs may share them
  std::vector<std::unique_ptr<Marker>> spare_markers_[2];               // indexed by `timed`
};

}  // namespace detshare
