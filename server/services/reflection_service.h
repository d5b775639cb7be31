// gRPC's server reflection, so that tools such as grpcurl need no .proto files. gRPC's own
// implementation brings a thread pool that wakes up every few seconds. This one has no threads, so
// an idle daemon sleeps.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "proto/reflection.grpc.pb.h"

namespace detshare {

class ReflectionService final
    : public grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  // `services` are the full names of the server's services.
  explicit ReflectionService(std::vector<std::string> services) : services_(std::move(services)) {}

  grpc::ServerBidiReactor<grpc::reflection::v1alpha::ServerReflectionRequest,
                          grpc::reflection::v1alpha::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  const std::vector<std::string> services_;
};

}  // namespace detshare
