#include "coroutine_runtime/event_table.h"

#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "policy/session_caps.h"
#include "policy/status_macros.h"

namespace detshare {
namespace {

absl::Status UnknownEvent() { return CudaError(kCudaErrorInvalidHandle, "no such event"); }

}  // namespace

absl::Status EventTable::Create(EventId id, ContextId context, bool timed) {
  if (id == 0 || context == 0 || events_.contains(id)) {
    return CudaError(kCudaErrorInvalidValue, "the id of a new event is 0 or in use");
  }
  if (events_.size() >= kMaxEvents) return CudaError(kCudaErrorOutOfMemory, "too many events");
  auto event = std::make_shared<LogicalEvent>();
  event->context = context;
  event->timed = timed;
  std::vector<std::unique_ptr<Marker>>& spare = spare_markers_[timed];
  if (!spare.empty()) {
    event->marker = std::move(spare.back());
    spare.pop_back();
  } else {
    DETSHARE_ASSIGN_OR_RETURN(event->marker, device_.CreateMarker(timed));
  }
  events_.emplace(id, std::move(event));
  return absl::OkStatus();
}

absl::Status EventTable::Destroy(EventId id) {
  const auto found = events_.find(id);
  if (found == events_.end()) return UnknownEvent();
  LogicalEvent& event = *found->second;
  // A marker that a graph still records must not serve another event.
  if (found->second.use_count() == 1)
    spare_markers_[event.timed].push_back(std::move(event.marker));
  events_.erase(found);
  return absl::OkStatus();
}

void EventTable::DestroyAllOf(ContextId context) {
  std::vector<EventId> dead;
  for (const auto& [id, event] : events_) {
    if (event->context == context) dead.push_back(id);
  }
  for (EventId id : dead) Destroy(id).IgnoreError();
}

absl::StatusOr<LogicalEvent*> EventTable::Find(EventId id) const {
  const auto found = events_.find(id);
  if (found == events_.end()) return UnknownEvent();
  return found->second.get();
}

absl::StatusOr<std::shared_ptr<Marker>> EventTable::Share(EventId id, bool** recorded) const {
  const auto found = events_.find(id);
  if (found == events_.end()) return UnknownEvent();
  const std::shared_ptr<LogicalEvent>& event = found->second;
  *recorded = &event->recorded;
  return std::shared_ptr<Marker>(event, event->marker.get());
}

absl::Status EventTable::Query(EventId id) const {
  DETSHARE_ASSIGN_OR_RETURN(LogicalEvent* const event, Find(id));
  DETSHARE_RETURN_IF_ERROR(space_.fault());
  if (!event->recorded) return absl::OkStatus();
  bool reached = false;
  if (!event->marker->parked()) {
    DETSHARE_ASSIGN_OR_RETURN(reached, device_.Reached(*event->marker));
  }
  return reached ? absl::OkStatus()
                 : CudaError(kCudaErrorNotReady, "the event's point is not reached");
}

absl::StatusOr<float> EventTable::ElapsedMilliseconds(EventId start_id, EventId end_id) const {
  DETSHARE_ASSIGN_OR_RETURN(LogicalEvent* const start, Find(start_id));
  DETSHARE_ASSIGN_OR_RETURN(LogicalEvent* const end, Find(end_id));
  for (const LogicalEvent* event : {start, end}) {
    if (!event->recorded || !event->timed) {
      return CudaError(kCudaErrorInvalidHandle, "the event was not recorded or has no timing");
    }
    if (event->marker->parked())
      return CudaError(kCudaErrorNotReady, "the event's point is not reached");
  }
  return device_.ElapsedMilliseconds(*start->marker, *end->marker);
}

}  // namespace detshare
