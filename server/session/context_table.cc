#include "server/session/context_table.h"

#include <utility>

#include "coroutine_runtime/shared_event.h"
#include "coroutine_runtime/status_cuda.h"
#include "server/session/session_limits.h"

namespace detshare {

absl::Status ContextTable::Use(ContextId context, SessionDevice& device) {
  if (context == 0) return CudaError(kCudaErrorInvalidContext, "no context");
  auto found = contexts_.find(context);
  if (found != contexts_.end()) {
    if (found->second == &device) return absl::OkStatus();
    return CudaError(kCudaErrorInvalidContext, "the context belongs to another device");
  }
  if (contexts_.size() >= limits_.contexts)
    return CudaError(kCudaErrorOutOfMemory, "too many contexts");
  contexts_.emplace(context, &device);
  return absl::OkStatus();
}

void ContextTable::Forget(ContextId context) {
  contexts_.erase(context);
  absl::erase_if(streams_, [context](const auto& stream) { return stream.second == context; });
  absl::erase_if(events_, [context](const auto& event) { return event.second == context; });
  absl::erase_if(shared_events_,
                 [this](const auto& event) { return !events_.contains(event.first); });
}

SessionDevice* ContextTable::DeviceOf(ContextId context) const {
  const auto found = contexts_.find(context);
  return found != contexts_.end() ? found->second : nullptr;
}

absl::Status ContextTable::AddStream(StreamId stream, ContextId context) {
  if (streams_.size() >= limits_.streams)
    return CudaError(kCudaErrorOutOfMemory, "too many streams");
  if (!streams_.emplace(stream, context).second)
    return CudaError(kCudaErrorInvalidValue, "the stream id is taken");
  return absl::OkStatus();
}

absl::Status ContextTable::AddEvent(EventId event, ContextId context) {
  if (events_.size() >= limits_.events) return CudaError(kCudaErrorOutOfMemory, "too many events");
  if (!events_.emplace(event, context).second)
    return CudaError(kCudaErrorInvalidValue, "the event id is taken");
  return absl::OkStatus();
}

void ContextTable::RemoveEvent(EventId event) {
  events_.erase(event);
  shared_events_.erase(event);
}

SessionDevice* ContextTable::DeviceOfEvent(EventId event) const {
  const auto found = events_.find(event);
  return found != events_.end() ? DeviceOf(found->second) : nullptr;
}

void ContextTable::ShareEvent(EventId event, std::shared_ptr<SharedEvent> shared) {
  shared_events_.emplace(event, std::move(shared));
}

std::shared_ptr<SharedEvent> ContextTable::FindSharedEvent(EventId event) const {
  if (shared_events_.empty()) [[likely]]
    return nullptr;
  const auto found = shared_events_.find(event);
  return found != shared_events_.end() ? found->second : nullptr;
}

}  // namespace detshare
