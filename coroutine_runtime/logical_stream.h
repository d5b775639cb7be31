// The state of a session's streams and contexts. StreamTable owns it. Each group of members belongs
// to the class that its comment names, and only that class changes it.
//
// Threading: the coroutine's thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/fence_pool.h"
#include "coroutine_runtime/peer_queue.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/sched_entity.h"

namespace detshare {

struct LogicalContext;

struct LogicalStream {
  // ---- StreamTable
  uint64_t serial = 0;  // distinguishes streams which had the same id one after the other
  LogicalContext* context = nullptr;
  bool legacy = false;    // is the legacy default stream of its context
  bool blocking = false;  // is ordered with the legacy default stream, and is not that stream
  int priority = 0;       // as the client gave it
  bool retired = false;   // has no id any more; its work may not be complete

  // ---- StreamOrder
  // The queue and the partition of the last operation; null before the first one.
  Queue* queue = nullptr;
  Partition* partition = nullptr;
  bool urgent = false;  // of `queue`
  // One for each partition and urgency that the stream has run with.
  absl::InlinedVector<PooledQueue, 2> queues;
  std::unique_ptr<Marker> marker;  // made with the first queue
  bool resigned = false;           // gave its queues back; the marker is behind all of its work
  bool dirty = false;              // has operations that the legacy stream has not waited for
  uint64_t seen_legacy = 0;        // the legacy operation that the stream has waited for
  uint64_t seen_barrier = 0;       // the barrier of StreamOrder that the stream has waited for
  bool uncollected = false;        // has work that the context's collector has not waited for
  FenceLease fence;                // acquired for the stream's first point
  uint64_t entries = 0;            // calls that may have added work
  FencePoint observed;             // behind all work of the first `observed_entries` entries
  uint64_t observed_entries = 0;
  uint64_t fenced_entries = 0;  // `fence` is behind all work of so many entries

  // ---- WorkAccount
  struct {
    // Device time, and number, of operations behind which there is no fence yet.
    Nanoseconds unfenced = 0;
    int unfenced_operations = 0;
    bool reads = false;      // a copy to the host is among them
    Nanoseconds parked = 0;  // device time of operations that cannot begin before `awaited`
    FencePoint awaited;      // behind the latest wait for the client or another session
  } work;
  // Whether later operations still wait for something other than the session's own work.
  bool IsParked() {
    if (work.awaited.fence == nullptr) return false;
    if (!work.awaited.reached()) return true;
    work.awaited = {};
    return false;
  }

  // ---- GpuCoroutine
  // One for each device and time-slice group that has executed work of the stream.
  std::vector<PeerQueue> peers;

  // Gives all queues back to their pools. The stream's work is complete.
  void ReturnQueues();
  // The same with idle queues but that of the last operation. Returns whether there were any.
  bool ReturnIdleQueues();
};

struct LogicalContext {
  // ---- StreamTable
  std::vector<LogicalStream*> streams;  // retired ones, too, until they are reclaimed
  LogicalStream* legacy = nullptr;      // null until it is created

  // ---- StreamOrder
  uint64_t legacy_operations = 0;  // of the legacy stream
  // Stands behind operation number `legacy_marked` of the legacy stream. The stream's own marker
  // cannot replace it: since that operation, the stream may have waited for other work, to be
  // observed or to move, and blocking streams must not wait for that work.
  std::unique_ptr<Marker> legacy_marker;
  uint64_t legacy_marked = 0;
  uint64_t legacy_barrier = 0;  // the last barrier that stands behind work of the legacy stream
  // The dirty streams. StreamTable reserves room for all streams, so that operations do not
  // allocate.
  std::vector<LogicalStream*> dirty;
  // Waits for the streams when the client waits for the whole context, so that no stream has to
  // wait for another. Null until that is needed; then the one of the session's time-slice group.
  PooledQueue* collector = nullptr;
  std::array<PooledQueue, 2> collectors;     // of the ordinary and of the urgent group
  std::unique_ptr<Marker> collector_marker;  // made with the first collector
};

// Adds an event of the stream at the present time to the entity's trace. `cause`: as
// TraceEvent::cause.
void TracePoint(SchedEntity& entity, TraceEvent::Kind kind, const LogicalStream& stream,
                uint8_t cause = 0);

}  // namespace detshare
