// The gRPC service of NVML's shim (proto/telemetry.proto).
#pragma once

#include <grpcpp/grpcpp.h>

#include "proto/telemetry.grpc.pb.h"
#include "server/access/peer_table.h"
#include "server/telemetry/telemetry.h"

namespace detshare {

// Runs on gRPC's threads and never makes them wait.
class TelemetryService final : public proto::Telemetry::CallbackService {
 public:
  TelemetryService(Telemetry& telemetry, PeerTable& peers) : telemetry_(telemetry), peers_(peers) {}

  grpc::ServerUnaryReactor* Read(grpc::CallbackServerContext* context,
                                 const proto::TelemetryRequest* request,
                                 proto::TelemetryReply* reply) override;

 private:
  Telemetry& telemetry_;
  PeerTable& peers_;
};

}  // namespace detshare
