#include "tools/detsharectl/names.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>

#include "proto/admin.grpc.pb.h"
#include "proto/command_line.h"
#include "proto/tenant_endpoint.grpc.pb.h"
#include "tools/detsharectl/daemon.h"

namespace detshare::ctl {
namespace {

// A person waits for a completion. The daemon waits two seconds for an engine that hangs.
constexpr std::chrono::seconds kPatience(3);

class Asker {
 public:
  explicit Asker(const std::string& socket)
      : channel_(grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials())) {}

  // `call(stub, context)` makes one call of the service.
  template <typename Service, typename Call>
  void Ask(Call call) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    call(*Service::NewStub(channel_), &context);
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace

std::vector<std::string> NamesOf(const std::string& kind, const std::string& socket) {
  std::vector<std::string> names;
  // A failed call leaves its reply empty.
  Asker asker(socket);
  if (kind == "policies") {
    proto::Policies policies;
    asker.Ask<proto::Admin>([&](auto& admin, grpc::ClientContext* context) {
      admin.GetPolicies(context, proto::GetPoliciesRequest(), &policies);
    });
    for (const proto::PolicyInfo& policy : policies.policies()) names.push_back(policy.name());
  } else if (kind == "endpoints") {
    proto::EndpointList endpoints;
    asker.Ask<proto::TenantEndpoints>([&](auto& stub, grpc::ClientContext* context) {
      stub.GetEndpoints(context, proto::GetEndpointsRequest(), &endpoints);
    });
    for (const proto::TenantEndpoint& endpoint : endpoints.endpoints())
      names.push_back(endpoint.name());
  } else {
    proto::Status status;
    asker.Ask<proto::Admin>([&](auto& admin, grpc::ClientContext* context) {
      admin.GetStatus(context, proto::GetStatusRequest(), &status);
    });
    std::set<std::string> tenants;
    for (const proto::SessionStatus& session : status.sessions()) {
      tenants.insert(session.tenant());
      if (kind == "sessions") names.push_back(std::to_string(session.session()));
    }
    if (kind != "tenants") return names;
    proto::Tenants settings;
    asker.Ask<proto::Admin>([&](auto& admin, grpc::ClientContext* context) {
      admin.GetTenants(context, proto::GetTenantsRequest(), &settings);
    });
    for (const proto::TenantSetting& tenant : settings.tenants()) tenants.insert(tenant.name());
    names.assign(tenants.begin(), tenants.end());
  }
  return names;
}

std::string HintAt(const std::string& name, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return "";
  const std::string meant = DidYouMean(name, known);
  return meant.empty() ? "" : "Did you mean " + meant + "?\n";
}

int PrintNames(const std::string& kind, const std::string& socket) {
  for (const std::string& name : NamesOf(kind, socket)) std::printf("%s\n", name.c_str());
  return 0;
}

}  // namespace detshare::ctl
