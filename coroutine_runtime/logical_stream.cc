#include "coroutine_runtime/logical_stream.h"

namespace detshare {

void LogicalStream::ReturnQueues() {
  for (PooledQueue& queue : queues) queue.ReturnIdle();
  for (PeerQueue& peer : peers) peer.ReturnIdle();
}

void TracePoint(SchedEntity& entity, TraceEvent::Kind kind, const LogicalStream& stream,
                uint8_t cause) {
  TraceEvent event;
  event.kind = kind;
  event.cause = cause;
  event.stream = stream.serial;
  if (stream.partition != nullptr) {
    event.first_sm = static_cast<uint16_t>(stream.partition->first_sm());
    event.sm_count = static_cast<uint16_t>(stream.partition->sm_count());
  }
  event.at = entity.Now();
  entity.trace().Add(event);
}

}  // namespace detshare
