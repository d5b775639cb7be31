#include "coroutine_runtime/logical_stream.h"

#include <algorithm>

namespace detshare {

void LogicalStream::ReturnQueues() {
  for (PooledQueue& queue : queues) queue.ReturnIdle();
  for (PeerQueue& peer : peers) peer.ReturnIdle();
}

bool LogicalStream::ReturnIdleQueues() {
  for (PooledQueue& one : queues) {
    if (one.get() != queue && one.get()->Idle()) one.ReturnIdle();
  }
  const auto kept = std::remove_if(queues.begin(), queues.end(),
                                   [](const PooledQueue& one) { return one.get() == nullptr; });
  const bool any = kept != queues.end();
  queues.erase(kept, queues.end());
  return any;
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
