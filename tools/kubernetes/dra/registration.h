// Tells kubelet about the driver. Kubelet finds the socket of this service, asks it for the driver's
// own socket, and says whether it takes the driver.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "tools/kubernetes/dra/plugin_registration.grpc.pb.h"

namespace detshare::kubernetes {

class RegistrationService final : public pluginregistration::Registration::Service {
 public:
  // `endpoint` is the path of the driver's own socket.
  explicit RegistrationService(std::string endpoint) : endpoint_(std::move(endpoint)) {}

  grpc::Status GetInfo(grpc::ServerContext* context, const pluginregistration::InfoRequest* request,
                       pluginregistration::PluginInfo* info) override;
  grpc::Status NotifyRegistrationStatus(
      grpc::ServerContext* context, const pluginregistration::RegistrationStatus* status,
      pluginregistration::RegistrationStatusResponse* response) override;

 private:
  const std::string endpoint_;
};

}  // namespace detshare::kubernetes
