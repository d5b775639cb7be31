#include "tools/detsharectl/endpoint.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/tenant_endpoint.grpc.pb.h"
#include "tools/detsharectl/daemon.h"
#include "tools/detsharectl/json_text.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

// `call(stub, context)` makes one call of the service; it may take ten seconds. CallEndpoints()
// returns 0, or an exit code after a message.
template <typename Call>
grpc::Status Make(const std::string& socket, Call call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::ChannelArguments arguments;
  // A connection of its own, so that an earlier call that found no daemon does not delay this one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = proto::TenantEndpoints::NewStub(
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
  return call(*stub, &context);
}
template <typename Call>
int CallEndpoints(const std::string& socket, Call call) {
  return Explain(Make(socket, call), socket);
}

}  // namespace

int OpenEndpoint(const EndpointOptions& options) {
  TenantFlags flags = options.tenant;
  if (flags.name.empty()) flags.name = options.name;
  const absl::StatusOr<proto::TenantSetting> tenant = ToSetting(flags);
  if (!tenant.ok()) {
    std::fprintf(stderr, "detsharectl: %s\n", std::string(tenant.status().message()).c_str());
    return kExitUsage;
  }
  proto::TenantEndpoint endpoint;
  endpoint.set_name(options.name);
  *endpoint.mutable_tenant() = *tenant;
  for (const std::string& device : options.devices) endpoint.add_device_ids(device);
  proto::OpenedEndpoint opened;
  const int code =
      CallEndpoints(options.socket, [&](auto& endpoints, grpc::ClientContext* context) {
        return endpoints.OpenEndpoint(context, endpoint, &opened);
      });
  if (code != 0) return code;
  const std::string directory = options.socket.substr(0, options.socket.rfind('/') + 1);
  std::printf("%s%s\n", directory.c_str(), opened.directory().c_str());
  return 0;
}

int CloseEndpoint(const EndpointOptions& options) {
  proto::CloseEndpointRequest request;
  proto::CloseEndpointReply reply;
  request.set_name(options.name);
  const int code =
      CallEndpoints(options.socket, [&](auto& endpoints, grpc::ClientContext* context) {
        return endpoints.CloseEndpoint(context, request, &reply);
      });
  if (code == 0)
    std::fputs((options.json ? UseJson(reply.use()) : UseText(reply.use())).c_str(), stdout);
  return code;
}

int GetEndpoints(const std::string& socket, proto::EndpointList* endpoints, bool quiet) {
  const grpc::Status result = Make(socket, [&](auto& stub, grpc::ClientContext* context) {
    return stub.GetEndpoints(context, proto::GetEndpointsRequest(), endpoints);
  });
  if (!quiet || result.ok()) return Explain(result, socket);
  return FailureOf(result, socket).exit_code;
}

int PrintEndpoints(const EndpointOptions& options) {
  proto::EndpointList list;
  const int code = GetEndpoints(options.socket, &list);
  if (code == 0)
    std::fputs((options.json ? EndpointsJson(list) : EndpointsText(list)).c_str(), stdout);
  return code;
}

std::string UseText(const proto::EndpointUse& use) {
  return absl::StrFormat("Its %d sessions used GPUs for %.1f s, and at most %s of memory.\n",
                         use.sessions(), static_cast<double>(use.gpu_time_ns()) / 1e9,
                         text::Bytes(use.peak_memory()));
}

std::string UseJson(const proto::EndpointUse& use) {
  return JsonText({{"sessions", use.sessions()},
                   {"gpu_seconds", static_cast<double>(use.gpu_time_ns()) / 1e9},
                   {"peak_memory", use.peak_memory()}});
}

std::string EndpointsText(const proto::EndpointList& endpoints) {
  if (endpoints.endpoints_size() == 0) return "There are no endpoints.\n";
  text::Table table({"ENDPOINT", "TENANT", "DEVICES"});
  for (const proto::TenantEndpoint& endpoint : endpoints.endpoints())
    table.Add(
        {endpoint.name(), endpoint.tenant().name(), absl::StrJoin(endpoint.device_ids(), ",")});
  return table.ToString();
}

std::string EndpointsJson(const proto::EndpointList& endpoints) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const proto::TenantEndpoint& endpoint : endpoints.endpoints()) {
    list.push_back({{"name", endpoint.name()},
                    {"tenant", endpoint.tenant().name()},
                    {"devices", std::vector<std::string>(endpoint.device_ids().begin(),
                                                         endpoint.device_ids().end())}});
  }
  return JsonText(list);
}

}  // namespace detshare::ctl
