#include "tools/kubernetes/pod_owners.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/owner.h"

namespace detshare::kubernetes {
namespace {

constexpr std::chrono::seconds kCallTimeout(2);
// Kubelet lists a container's devices when it starts the container, or soon after.
constexpr std::chrono::seconds kSoon(60), kPeriod(30);
constexpr int kMaxReplyBytes = 16 << 20;  // as kubelet's own clients

absl::StatusOr<v1::ListPodResourcesResponse> List(const std::string& socket) {
  struct stat status {};
  if (stat(socket.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode))
    return absl::NotFoundError(absl::StrCat("there is no ", socket));
  grpc::ChannelArguments arguments;
  // A new connection for each call, so that none leads to a kubelet that has ended.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  const auto stub = v1::PodResourcesLister::NewStub(
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  v1::ListPodResourcesResponse pods;
  const grpc::Status result = stub->List(&context, {}, &pods);
  if (result.ok()) return pods;
  return absl::Status(
      static_cast<absl::StatusCode>(result.error_code()),
      absl::StrCat("kubelet does not say which pods have the shares: ", result.error_message()));
}

}  // namespace

std::map<std::string, proto::Owner> OwnersIn(const v1::ListPodResourcesResponse& pods,
                                             const std::string& domain,
                                             const std::vector<Resource>& resources) {
  std::map<std::string, proto::Owner> owners;
  for (const v1::PodResources& pod : pods.pod_resources()) {
    for (const v1::ContainerResources& container : pod.containers()) {
      for (const Resource& resource : resources) {
        std::vector<std::string> ids;
        for (const v1::ContainerDevices& devices : container.devices()) {
          if (devices.resource_name() == absl::StrCat(domain, "/", resource.name))
            ids.insert(ids.end(), devices.device_ids().begin(), devices.device_ids().end());
        }
        if (ids.empty()) continue;
        // As EndpointOf() names it.
        proto::Owner& owner =
            owners[EndpointName(resource, *std::min_element(ids.begin(), ids.end()))];
        owner.set_namespace_(pod.namespace_());
        owner.set_pod(pod.name());
        owner.set_container(container.name());
      }
    }
  }
  return owners;
}

PodOwners::PodOwners(std::string socket, std::string domain, std::vector<Resource> resources,
                     DaemonLink& daemon)
    : socket_(std::move(socket)),
      domain_(std::move(domain)),
      resources_(std::move(resources)),
      daemon_(daemon) {}

absl::Status PodOwners::Tend() {
  const Clock::time_point now = Clock::now();
  const uint64_t opened = daemon_.opened();
  if (opened != opened_) {
    opened_ = opened;
    opened_at_ = now;
  }
  const bool soon = now - opened_at_ < kSoon;
  if (!soon && now < next_look_) return seen_;
  const absl::StatusOr<proto::EndpointList> endpoints = daemon_.Endpoints();
  if (!endpoints.ok()) return endpoints.status();
  const bool unknown =
      std::any_of(endpoints->endpoints().begin(), endpoints->endpoints().end(),
                  [this](const auto& one) { return IsOurs(one) && IsEmpty(one.owner()); });
  if (!unknown && now < next_look_) return seen_;
  next_look_ = now + kPeriod;
  seen_ = Look(*endpoints);
  return seen_;
}

absl::Status PodOwners::Look(const proto::EndpointList& endpoints) {
  const absl::StatusOr<v1::ListPodResourcesResponse> pods = List(socket_);
  if (!pods.ok()) return pods.status();
  const std::map<std::string, proto::Owner> owners = OwnersIn(*pods, domain_, resources_);
  for (const proto::TenantEndpoint& endpoint : endpoints.endpoints()) {
    if (!IsOurs(endpoint)) continue;
    const auto found = owners.find(endpoint.name());
    // The endpoint of a container that has gone stays until another one gets its shares.
    const proto::Owner owner = found != owners.end() ? found->second : proto::Owner();
    if (AreSame(owner, endpoint.owner())) continue;
    if (absl::Status set = daemon_.SetOwner(endpoint.name(), owner); !set.ok()) return set;
  }
  return absl::OkStatus();
}

bool PodOwners::IsOurs(const proto::TenantEndpoint& endpoint) const {
  return std::any_of(resources_.begin(), resources_.end(), [&](const Resource& resource) {
    return absl::StartsWith(endpoint.name(), EndpointName(resource, ""));
  });
}

}  // namespace detshare::kubernetes
