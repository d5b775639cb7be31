// The contexts, streams and events of one session, by the ids that its client chose. This table
// counts streams and events and knows their contexts. The GPU coroutine of the device holds the
// objects themselves, except events shared with other sessions: those are here.
//
// Threading: the session's worker.
#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "proto/ring_abi.h"

namespace detshare {

class SharedEvent;
struct SessionDevice;
struct SessionLimits;

class ContextTable {
 public:
  explicit ContextTable(const SessionLimits& limits) : limits_(limits) {}

  // Creates the context when the client first names it. CUDA_ERROR_INVALID_CONTEXT for id 0 and for
  // a context of another device.
  absl::Status Use(ContextId context, SessionDevice& device);
  // Removes the context with its streams and events.
  void Forget(ContextId context);
  // The device of a context that Use() created; nullptr for any other id.
  SessionDevice* DeviceOf(ContextId context) const;

  absl::Status AddStream(StreamId stream, ContextId context);
  void RemoveStream(StreamId stream) { streams_.erase(stream); }
  absl::Status AddEvent(EventId event, ContextId context);
  void RemoveEvent(EventId event);
  // The device of the event's context; nullptr when there is no such event.
  SessionDevice* DeviceOfEvent(EventId event) const;

  // Stores an event that other sessions may use.
  void ShareEvent(EventId event, std::shared_ptr<SharedEvent> shared);
  // nullptr when the event is not shared.
  std::shared_ptr<SharedEvent> FindSharedEvent(EventId event) const;

 private:
  const SessionLimits& limits_;
  absl::flat_hash_map<ContextId, SessionDevice*> contexts_;
  absl::flat_hash_map<StreamId, ContextId> streams_;
  absl::flat_hash_map<EventId, ContextId> events_;
  absl::flat_hash_map<EventId, std::shared_ptr<SharedEvent>> shared_events_;
};

}  // namespace detshare
