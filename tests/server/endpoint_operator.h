// An operator who opens and closes tenant endpoints.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "proto/tenant_endpoint.grpc.pb.h"
#include "tests/server/grpc_stubs.h"

namespace detshare {

// An operator at the daemon's own socket.
struct Operator {
  explicit Operator(const std::string& socket)
      : client(socket), endpoints(proto::TenantEndpoints::NewStub(client.channel())) {}

  grpc::Status Open(const std::string& name, const std::vector<std::string>& devices = {},
                    const proto::TenantSetting& tenant = {}, const proto::Owner& owner = {}) {
    proto::TenantEndpoint endpoint;
    *endpoint.mutable_owner() = owner;
    endpoint.set_name(name);
    *endpoint.mutable_tenant() = tenant;
    for (const std::string& device : devices) endpoint.add_device_ids(device);
    return Open(endpoint);
  }
  grpc::Status Open(const proto::TenantEndpoint& endpoint) {
    grpc::ClientContext context;
    proto::OpenedEndpoint opened;
    const grpc::Status status = endpoints->OpenEndpoint(&context, endpoint, &opened);
    directory = opened.directory();
    return status;
  }
  grpc::Status Change(const proto::TenantEndpoint& endpoint) {
    grpc::ClientContext context;
    proto::OpenedEndpoint opened;
    return endpoints->ChangeEndpoint(&context, endpoint, &opened);
  }
  grpc::Status SetOwner(const std::string& name, const proto::Owner& owner) {
    grpc::ClientContext context;
    proto::EndpointOwner wanted, in_force;
    wanted.set_name(name);
    *wanted.mutable_owner() = owner;
    return endpoints->SetEndpointOwner(&context, wanted, &in_force);
  }
  grpc::Status Close(const std::string& name) {
    grpc::ClientContext context;
    proto::CloseEndpointRequest request;
    proto::CloseEndpointReply reply;
    request.set_name(name);
    const grpc::Status status = endpoints->CloseEndpoint(&context, request, &reply);
    use = reply.use();
    return status;
  }
  proto::EndpointList List() {
    grpc::ClientContext context;
    proto::EndpointList list;
    REQUIRE(endpoints->GetEndpoints(&context, {}, &list).ok());
    return list;
  }
  proto::Status Status() {
    grpc::ClientContext context;
    proto::Status status;
    REQUIRE(AdminOf(client)->GetStatus(&context, {}, &status).ok());
    return status;
  }
  // The owner of the latest event of this kind; none if there is no such event yet.
  proto::Owner OwnerInEvent(const std::string& kind) {
    grpc::ClientContext context;
    proto::Events events;
    REQUIRE(AdminOf(client)->GetEvents(&context, {}, &events).ok());
    const auto found = std::find_if(events.events().rbegin(), events.events().rend(),
                                    [&](const auto& event) { return event.kind() == kind; });
    return found != events.events().rend() ? found->owner() : proto::Owner();
  }

  TestClient client;
  std::unique_ptr<proto::TenantEndpoints::Stub> endpoints;
  std::string directory;   // that Open() has returned
  proto::EndpointUse use;  // that Close() has returned
};

}  // namespace detshare
