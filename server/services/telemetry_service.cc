#include "server/services/telemetry_service.h"

#include <optional>
#include <utility>

namespace detshare {

grpc::ServerUnaryReactor* TelemetryService::Read(grpc::CallbackServerContext* context,
                                                 const proto::TelemetryRequest* request,
                                                 proto::TelemetryReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::optional<Peer> peer = peers_.Find(context->peer());
  if (!peer.has_value()) {
    reactor->Finish({grpc::StatusCode::PERMISSION_DENIED, "not a local connection"});
    return reactor;
  }
  telemetry_.Reply(*peer, *request, [reactor, reply](proto::TelemetryReply body) {
    *reply = std::move(body);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace detshare
