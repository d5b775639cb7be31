#include "tools/kubernetes/dra/registration.h"

#include <cstdio>

#include "tools/kubernetes/dra/claim.h"

namespace detshare::kubernetes {

grpc::Status RegistrationService::GetInfo(grpc::ServerContext*,
                                          const pluginregistration::InfoRequest*,
                                          pluginregistration::PluginInfo* info) {
  info->set_type("DRAPlugin");
  info->set_name(kDriver);
  info->set_endpoint(endpoint_);
  for (const char* service : {"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"})
    info->add_supported_versions(service);
  return grpc::Status::OK;
}

grpc::Status RegistrationService::NotifyRegistrationStatus(
    grpc::ServerContext*, const pluginregistration::RegistrationStatus* status,
    pluginregistration::RegistrationStatusResponse*) {
  if (status->plugin_registered()) {
    std::fprintf(stderr, "kubelet knows %s\n", kDriver);
  } else {
    std::fprintf(stderr, "kubelet does not take %s: %s\n", kDriver, status->error().c_str());
  }
  return grpc::Status::OK;
}

}  // namespace detshare::kubernetes
