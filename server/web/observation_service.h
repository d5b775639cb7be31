// The gRPC service with which the supervisor gets this engine's observation
// (proto/observation.proto).
#pragma once

#include <grpcpp/grpcpp.h>

#include "proto/observation.grpc.pb.h"
#include "server/access/identity.h"
#include "server/web/observer.h"

namespace detshare {

class ObservationService final : public proto::Observing::CallbackService {
 public:
  // The arguments outlive this object.
  ObservationService(Observer& observer, PeerTable& peers, const Identity& identity)
      : observer_(observer), peers_(peers), identity_(identity) {}

  grpc::ServerUnaryReactor* Observe(grpc::CallbackServerContext* context,
                                    const proto::ObserveRequest* request,
                                    proto::Observation* observation) override;

 private:
  Observer& observer_;
  PeerTable& peers_;
  const Identity& identity_;
};

}  // namespace detshare
