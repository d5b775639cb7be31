// The gRPC service of people and their tools (proto/control.proto).
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>

#include "proto/control.grpc.pb.h"
#include "server/session_manager.h"

namespace detshare {

class AdminService final : public proto::Admin::CallbackService {
 public:
  AdminService(SessionManager& manager, std::string backend)
      : manager_(manager), backend_(std::move(backend)), begin_(std::chrono::steady_clock::now()) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const proto::GetStatusRequest* request,
                                      proto::Status* status) override;

 private:
  SessionManager& manager_;
  const std::string backend_;
  const std::chrono::steady_clock::time_point begin_;
};

}  // namespace detshare
