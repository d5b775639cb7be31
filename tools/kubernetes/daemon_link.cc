#include "tools/kubernetes/daemon_link.h"

#include <algorithm>
#include <chrono>

namespace detshare::kubernetes {
namespace {

// The daemon itself waits two seconds for an engine that hangs before it tells its status without
// it, and twice as long if others asked before. All GPUs count as unhealthy without a status, so
// only a daemon that hangs may exceed the timeout, also on a busy host.
constexpr std::chrono::seconds kStatusTimeout(10);
// Opening a tenant endpoint may make a partition, which waits for running work.
constexpr std::chrono::seconds kEndpointTimeout(20);

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& socket) {
  grpc::ChannelArguments arguments;
  // Short backoffs, so that the plugin finds a restarted daemon at once.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status ToStatus(const grpc::Status& status) {
  // gRPC's own texts say nothing to an operator, who reads them in the plugin's log and in a pod's
  // events.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE)
    return absl::UnavailableError(
        "no detshared replies at its socket: start it, or correct --socket");
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return absl::UnavailableError("detshared accepts connections but does not reply: read its log");
  // absl and gRPC use the same numbers for their codes.
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

// The allocator that has an endpoint with this device.
std::string AllocatorOf(const proto::EndpointList& endpoints, const std::string& uuid) {
  for (const proto::TenantEndpoint& endpoint : endpoints.endpoints()) {
    const auto& ids = endpoint.device_ids();  // none: all devices
    if (!endpoint.allocator().empty() &&
        (ids.empty() || std::find(ids.begin(), ids.end(), uuid) != ids.end()))
      return endpoint.allocator();
  }
  return "";
}

}  // namespace

DaemonLink::DaemonLink(const std::string& socket)
    : channel_(ChannelTo(socket)),
      admin_(proto::Admin::NewStub(channel_)),
      endpoints_(proto::TenantEndpoints::NewStub(channel_)) {}

absl::StatusOr<std::vector<Gpu>> DaemonLink::Gpus() {
  const absl::StatusOr<proto::EndpointList> endpoints = Endpoints();
  if (!endpoints.ok()) return endpoints.status();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kStatusTimeout);
  proto::Status status;
  const grpc::Status result = admin_->GetStatus(&context, {}, &status);
  if (!result.ok()) return ToStatus(result);
  std::vector<Gpu> gpus;
  for (const proto::DeviceStatus& device : status.devices()) {
    Gpu& gpu = gpus.emplace_back();
    gpu.uuid = device.uuid();
    gpu.memory = device.total_memory();
    gpu.healthy = device.state() == "ok";
    if (!gpu.healthy) gpu.problem = device.state();
    gpu.allocator = AllocatorOf(*endpoints, gpu.uuid);
    gpu.name = device.name();
    gpu.sm_count = static_cast<uint32_t>(std::max(0, device.sm_count()));
    gpu.compute_major = device.compute_major();
    gpu.compute_minor = device.compute_minor();
    gpu.driver_version = device.driver_version();
  }
  return gpus;
}

absl::StatusOr<proto::EndpointList> DaemonLink::Endpoints() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kStatusTimeout);
  proto::EndpointList list;
  const grpc::Status result = endpoints_->GetEndpoints(&context, {}, &list);
  if (!result.ok()) return ToStatus(result);
  return list;
}

absl::Status DaemonLink::OpenEndpoint(const proto::TenantEndpoint& endpoint) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kEndpointTimeout);
  proto::OpenedEndpoint opened;
  const absl::Status status = ToStatus(endpoints_->OpenEndpoint(&context, endpoint, &opened));
  if (status.ok()) ++opened_;
  return status;
}

absl::Status DaemonLink::SetOwner(const std::string& endpoint, const proto::Owner& owner) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kStatusTimeout);
  proto::EndpointOwner wanted, in_force;
  wanted.set_name(endpoint);
  *wanted.mutable_owner() = owner;
  return ToStatus(endpoints_->SetEndpointOwner(&context, wanted, &in_force));
}

absl::Status DaemonLink::ChangeEndpoint(const proto::TenantEndpoint& endpoint) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kEndpointTimeout);
  proto::OpenedEndpoint opened;
  return ToStatus(endpoints_->ChangeEndpoint(&context, endpoint, &opened));
}

absl::Status DaemonLink::CloseEndpoint(const std::string& name) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kEndpointTimeout);
  proto::CloseEndpointRequest request;
  request.set_name(name);
  proto::CloseEndpointReply reply;
  const absl::Status closed = ToStatus(endpoints_->CloseEndpoint(&context, request, &reply));
  return absl::IsNotFound(closed) ? absl::OkStatus() : closed;
}

}  // namespace detshare::kubernetes
