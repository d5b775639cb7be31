// The contexts, streams and events of one session, by the ids that its client chose. Streams and
// events are counted here, and looked up in the coroutine of their device; only events that other
// sessions may use, too, are here.
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

  // Contexts are born when a client first names them. CUDA_ERROR_INVALID_CONTEXT for 0 and for one
  // of another device.
  absl::Status Use(ContextId context, SessionDevice& device);
  // Its streams and events are gone, too.
  void Forget(ContextId context);
  // The device of a context that was used; nullptr when there is none.
  SessionDevice* DeviceOf(ContextId context) const;

  absl::Status AddStream(StreamId stream, ContextId context);
  void RemoveStream(StreamId stream) { streams_.erase(stream); }
  absl::Status AddEvent(EventId event, ContextId context);
  void RemoveEvent(EventId event);
  // The device on which an event was made; nullptr when there is no such event.
  SessionDevice* DeviceOfEvent(EventId event) const;

  // Other sessions may use the event.
  void ShareEvent(EventId event, std::shared_ptr<SharedEvent> shared);
  // nullptr when the event is none of these.
  std::shared_ptr<SharedEvent> FindSharedEvent(EventId event) const;

 private:
  const SessionLimits& limits_;
  absl::flat_hash_map<ContextId, SessionDevice*> contexts_;
  absl::flat_hash_map<StreamId, ContextId> streams_;
  absl::flat_hash_map<EventId, ContextId> events_;
  absl::flat_hash_map<EventId, std::shared_ptr<SharedEvent>> shared_events_;
};

}  // namespace detshare
