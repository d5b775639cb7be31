#include "tools/detsharectl/endpoint.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/owner.h"
#include "proto/tenant_endpoint.grpc.pb.h"
#include "tools/detsharectl/daemon.h"
#include "tools/detsharectl/json_text.h"
#include "tools/detsharectl/names.h"
#include "tools/detsharectl/owner_json.h"
#include "tools/detsharectl/status.h"
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

int Usage(const absl::Status& status) {
  std::fprintf(stderr, "detsharectl: %s\n", std::string(status.message()).c_str());
  return kExitUsage;
}

std::string DirectoryOf(const proto::TenantEndpoint& endpoint, const std::string& socket) {
  return socket.substr(0, socket.rfind('/') + 1) + endpoint.directory();
}

// The devices as `status` numbers them. One that it does not show keeps its UUID or the number that the
// operator wrote.
std::string DevicesOf(const proto::TenantEndpoint& endpoint, const proto::Status& status) {
  std::vector<std::string> names(endpoint.device_ids().begin(), endpoint.device_ids().end());
  for (std::string& name : names) {
    for (int i = 0; i < status.devices_size(); ++i) {
      if (status.devices(i).uuid() == name) name = std::to_string(i);
    }
  }
  return absl::StrJoin(names, ",");
}

// The open sessions by the names of their endpoints.
std::map<std::string, uint64_t> SessionsBehind(const proto::Status& status) {
  std::map<std::string, uint64_t> counts;
  for (const proto::SessionStatus& session : status.sessions()) ++counts[session.endpoint()];
  return counts;
}

}  // namespace

absl::StatusOr<proto::Owner> ToOwner(const OwnerFlags& flags) {
  proto::Owner owner;
  if (!flags.pod.empty()) {
    absl::StatusOr<proto::Owner> pod = OwnerOfPod(flags.pod);
    if (!pod.ok())
      return absl::InvalidArgumentError("--pod: " + std::string(pod.status().message()));
    owner = *std::move(pod);
  }
  owner.set_user(flags.user);
  owner.set_job(flags.job);
  if (absl::Status valid = CheckOwner(owner); !valid.ok()) return valid;
  return owner;
}

int OpenEndpoint(const EndpointOptions& options) {
  TenantFlags flags = options.tenant;
  if (flags.name.empty()) flags.name = options.name;
  const absl::StatusOr<proto::TenantSetting> tenant = ToSetting(flags);
  if (!tenant.ok()) return Usage(tenant.status());
  const absl::StatusOr<proto::Owner> owner = ToOwner(options.owner);
  if (!owner.ok()) return Usage(owner.status());
  proto::TenantEndpoint endpoint;
  *endpoint.mutable_owner() = *owner;
  endpoint.set_name(options.name);
  *endpoint.mutable_tenant() = *tenant;
  for (const std::string& device : options.devices) endpoint.add_device_ids(device);
  proto::OpenedEndpoint opened;
  const int code =
      CallEndpoints(options.socket, [&](auto& endpoints, grpc::ClientContext* context) {
        return endpoints.OpenEndpoint(context, endpoint, &opened);
      });
  if (code != 0) return code;
  const std::string path =
      options.socket.substr(0, options.socket.rfind('/') + 1) + opened.directory();
  std::fputs(
      (options.json ? JsonText({{"name", options.name}, {"path", path}}) : path + "\n").c_str(),
      stdout);
  return 0;
}

int SetEndpointOwner(const EndpointOptions& options) {
  const absl::StatusOr<proto::Owner> owner = ToOwner(options.owner);
  if (!owner.ok()) return Usage(owner.status());
  proto::EndpointOwner wanted, in_force;
  wanted.set_name(options.name);
  *wanted.mutable_owner() = *owner;
  const int code =
      CallEndpoints(options.socket, [&](auto& endpoints, grpc::ClientContext* context) {
        return endpoints.SetEndpointOwner(context, wanted, &in_force);
      });
  if (code == 0 && options.json) {
    std::fputs(
        JsonText({{"name", in_force.name()}, {"owner", OwnerJson(in_force.owner())}}).c_str(),
        stdout);
  }
  if (code == kExitRefused)
    std::fputs(HintAt(options.name, NamesOf("endpoints", options.socket)).c_str(), stderr);
  return code;
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
  if (code == kExitRefused)
    std::fputs(HintAt(options.name, NamesOf("endpoints", options.socket)).c_str(), stderr);
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
  int code = GetEndpoints(options.socket, &list);
  if (code != 0) return code;
  proto::Status status;
  code = CallAdmin(options.socket, [&](auto& admin, grpc::ClientContext* context) {
    return admin.GetStatus(context, proto::GetStatusRequest(), &status);
  });
  if (code != 0) return code;
  std::fputs((options.json ? EndpointsJson(list, status, options.socket)
                           : EndpointsText(list, status, options.socket, text::TerminalWidth()))
                 .c_str(),
             stdout);
  // Their sessions are not counted.
  std::fputs(SilentEnginesText(status).c_str(), stderr);
  return 0;
}

std::string UseText(const proto::EndpointUse& use) {
  return absl::StrFormat("Its %s used GPUs for %.1f s, and at most %s of memory.\n",
                         text::Counted(use.sessions(), "session"),
                         static_cast<double>(use.gpu_time_ns()) / 1e9,
                         text::Bytes(use.peak_memory()));
}

std::string UseJson(const proto::EndpointUse& use) {
  return JsonText({{"sessions", use.sessions()},
                   {"gpu_seconds", static_cast<double>(use.gpu_time_ns()) / 1e9},
                   {"peak_memory", use.peak_memory()}});
}

std::string EndpointsText(const proto::EndpointList& endpoints, const proto::Status& status,
                          const std::string& socket, size_t width) {
  if (endpoints.endpoints_size() == 0) return "There are no endpoints.\n";
  std::map<std::string, uint64_t> sessions = SessionsBehind(status);
  text::Table table({"ENDPOINT", "TENANT", "OWNER", "SESSIONS", "DEVICES", "PATH"});
  bool any_owner = false;
  for (const proto::TenantEndpoint& endpoint : endpoints.endpoints()) {
    any_owner = any_owner || !IsEmpty(endpoint.owner());
    table.Add({endpoint.name(), endpoint.tenant().name(), OwnerText(endpoint.owner()),
               text::Count(sessions[endpoint.name()]), DevicesOf(endpoint, status),
               DirectoryOf(endpoint, socket)});
  }
  if (!any_owner) table.Drop("OWNER");
  table.MayDrop({"DEVICES"});
  return table.ToString(0, width);
}

std::string EndpointsJson(const proto::EndpointList& endpoints, const proto::Status& status,
                          const std::string& socket) {
  std::map<std::string, uint64_t> sessions = SessionsBehind(status);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const proto::TenantEndpoint& endpoint : endpoints.endpoints()) {
    list.push_back({{"name", endpoint.name()},
                    {"tenant", endpoint.tenant().name()},
                    {"owner", OwnerJson(endpoint.owner())},
                    {"sessions", sessions[endpoint.name()]},
                    {"devices", std::vector<std::string>(endpoint.device_ids().begin(),
                                                         endpoint.device_ids().end())},
                    {"path", DirectoryOf(endpoint, socket)}});
  }
  return JsonText(list);
}

}  // namespace detshare::ctl
