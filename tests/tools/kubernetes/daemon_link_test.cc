#include "tools/kubernetes/daemon_link.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.grpc.pb.h"
#include "proto/tenant_endpoint.grpc.pb.h"

namespace detshare::kubernetes {
namespace {

// A daemon that waits for an engine before it tells its status, and has no endpoints.
class PatientDaemon final : public proto::Admin::Service {
 public:
  explicit PatientDaemon(std::chrono::milliseconds wait) : wait_(wait) {
    char pattern[] = "/tmp/ds-link-XXXXXX";
    directory_ = mkdtemp(pattern);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    builder.RegisterService(&endpoints_);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~PatientDaemon() {
    server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove_all(directory_);
  }
  std::string socket() const { return directory_ + "/d.sock"; }

  grpc::Status GetStatus(grpc::ServerContext*, const proto::GetStatusRequest*,
                         proto::Status* status) override {
    std::this_thread::sleep_for(wait_);
    proto::DeviceStatus& device = *status->add_devices();
    device.set_uuid("GPU-00000000-0000-0000-0000-000000000001");
    device.set_state("ok");
    return grpc::Status::OK;
  }

 private:
  class Endpoints final : public proto::TenantEndpoints::Service {
    grpc::Status GetEndpoints(grpc::ServerContext*, const proto::GetEndpointsRequest*,
                              proto::EndpointList*) override {
      return grpc::Status::OK;
    }
  };

  const std::chrono::milliseconds wait_;
  std::string directory_;
  Endpoints endpoints_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_CASE("GPUs are healthy while the daemon waits for engines that do not reply") {
  // Twice the supervisor's wait, for a request that came during the wait of another one.
  PatientDaemon daemon(std::chrono::seconds(4));
  DaemonLink link(daemon.socket());
  const absl::StatusOr<std::vector<Gpu>> gpus = link.Gpus();
  INFO(gpus.status().message());
  REQUIRE(gpus.ok());
  REQUIRE(gpus->size() == 1);
  CHECK((*gpus)[0].healthy);
}

}  // namespace
}  // namespace detshare::kubernetes
