#include "coroutine_runtime/peer_queue.h"

#include "policy/status_macros.h"

namespace detshare {

absl::StatusOr<PeerQueue> PeerQueue::Create(Device& home, QueuePool& host, Partition& partition,
                                            int priority, AddressSpace& space, Parking& parking) {
  PeerQueue peer;
  peer.host_ = &host;
  DETSHARE_ASSIGN_OR_RETURN(peer.arrived_, home.CreateMarker(/*timed=*/false));
  DETSHARE_ASSIGN_OR_RETURN(peer.done_, host.device().CreateMarker(/*timed=*/false));
  DETSHARE_ASSIGN_OR_RETURN(peer.queue_,
                            PooledQueue::Acquire(host, partition, priority, space, parking));
  return peer;
}

absl::Status PeerQueue::Run(Queue& home, absl::FunctionRef<absl::Status(Queue&)> submit) {
  Queue& abroad = *queue_.get();
  DETSHARE_RETURN_IF_ERROR(home.Record(*arrived_));
  DETSHARE_RETURN_IF_ERROR(abroad.Wait(*arrived_));
  DETSHARE_RETURN_IF_ERROR(submit(abroad));
  DETSHARE_RETURN_IF_ERROR(abroad.Record(*done_));
  return home.Wait(*done_);
}

}  // namespace detshare
