#include "server/web/observation_service.h"

#include "server/base/grpc_status.h"
#include "server/web/observation_message.h"

namespace detshare {

grpc::ServerUnaryReactor* ObservationService::Observe(grpc::CallbackServerContext* context,
                                                      const proto::ObserveRequest*,
                                                      proto::Observation* observation) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  const absl::Status allowed = peer.ok() ? identity_.MayAdminister(*peer) : peer.status();
  if (allowed.ok()) ToMessage(observer_.Observe(), observation);
  return FinishUnary(context, allowed);
}

}  // namespace detshare
