#include "server/web/observation_service.h"

#include <optional>
#include <string>

#include "server/web/observation_message.h"

namespace detshare {

grpc::ServerUnaryReactor* ObservationService::Observe(grpc::CallbackServerContext* context,
                                                      const proto::ObserveRequest*,
                                                      proto::Observation* observation) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::optional<Peer> peer = peers_.Find(context->peer());
  const absl::Status allowed = peer.has_value()
                                   ? identity_.MayAdminister(*peer)
                                   : absl::PermissionDeniedError("not a local connection");
  if (!allowed.ok()) {
    reactor->Finish(
        {static_cast<grpc::StatusCode>(allowed.code()), std::string(allowed.message())});
    return reactor;
  }
  ToMessage(observer_.Observe(), observation);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace detshare
