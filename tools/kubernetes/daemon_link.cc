#include "tools/kubernetes/daemon_link.h"

#include <chrono>

namespace detshare::kubernetes {
namespace {

// Opening a tenant endpoint may make a partition, which waits for running work.
constexpr std::chrono::seconds kStatusTimeout(2), kEndpointTimeout(20);

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& socket) {
  grpc::ChannelArguments arguments;
  // Short backoffs, so that the plugin finds a restarted daemon at once.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status ToStatus(const grpc::Status& status) {
  // absl and gRPC use the same numbers for their codes.
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace

DaemonLink::DaemonLink(const std::string& socket)
    : channel_(ChannelTo(socket)),
      admin_(proto::Admin::NewStub(channel_)),
      endpoints_(proto::TenantEndpoints::NewStub(channel_)) {}

absl::StatusOr<std::vector<Gpu>> DaemonLink::Gpus() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kStatusTimeout);
  proto::Status status;
  const grpc::Status result = admin_->GetStatus(&context, {}, &status);
  if (!result.ok()) return ToStatus(result);
  std::vector<Gpu> gpus;
  for (const proto::DeviceStatus& device : status.devices())
    gpus.push_back({device.uuid(), device.total_memory(), device.state() == "ok"});
  return gpus;
}

absl::Status DaemonLink::OpenEndpoint(const proto::TenantEndpoint& endpoint) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kEndpointTimeout);
  proto::OpenedEndpoint opened;
  const absl::Status status = ToStatus(endpoints_->OpenEndpoint(&context, endpoint, &opened));
  if (status.ok()) ++opened_;
  return status;
}

absl::StatusOr<proto::EndpointList> DaemonLink::Endpoints() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kStatusTimeout);
  proto::EndpointList list;
  const grpc::Status result = endpoints_->GetEndpoints(&context, {}, &list);
  if (!result.ok()) return ToStatus(result);
  return list;
}

absl::Status DaemonLink::SetOwner(const std::string& endpoint, const proto::Owner& owner) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kStatusTimeout);
  proto::EndpointOwner wanted, in_force;
  wanted.set_name(endpoint);
  *wanted.mutable_owner() = owner;
  return ToStatus(endpoints_->SetEndpointOwner(&context, wanted, &in_force));
}

}  // namespace detshare::kubernetes
