#include "server/services/telemetry_service.h"

#include <utility>

#include "server/base/grpc_status.h"

namespace detshare {

grpc::ServerUnaryReactor* TelemetryService::Read(grpc::CallbackServerContext* context,
                                                 const proto::TelemetryRequest* request,
                                                 proto::TelemetryReply* reply) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  telemetry_.Reply(*peer, *request, [reactor, reply](proto::TelemetryReply body) {
    *reply = std::move(body);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace detshare
