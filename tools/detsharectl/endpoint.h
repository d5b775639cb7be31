// `detsharectl endpoint`: opens, closes and lists tenant endpoints, which are sockets for
// containers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "proto/tenant_endpoint.pb.h"
#include "tools/detsharectl/settings.h"

namespace detshare::ctl {

// Whose an endpoint is, as the command line has it. An empty string: not known.
struct OwnerFlags {
  std::string pod;  // NAMESPACE/POD[/CONTAINER]
  std::string user, job;
};
// InvalidArgument with the rule that a text breaks.
absl::StatusOr<proto::Owner> ToOwner(const OwnerFlags& flags);

struct EndpointOptions {
  std::string socket;  // of the daemon
  bool json = false;
  std::string name;                  // of the endpoint
  std::vector<std::string> devices;  // indices or UUIDs; empty: all
  TenantFlags tenant;                // an empty name: the endpoint's name
  OwnerFlags owner;
};

// All four return an exit code. After an error, a message is on stderr. OpenEndpoint() prints the
// path of the endpoint's directory, and first closes an endpoint of the same name.
// SetEndpointOwner() replaces the owner of an open endpoint. CloseEndpoint() ends the endpoint's
// sessions, and prints what they have used.
int OpenEndpoint(const EndpointOptions& options);
int SetEndpointOwner(const EndpointOptions& options);
int CloseEndpoint(const EndpointOptions& options);
int PrintEndpoints(const EndpointOptions& options);

// Gets the open endpoints. Returns 0, or an exit code; after an error a message is on stderr, unless
// `quiet`.
int GetEndpoints(const std::string& socket, proto::EndpointList* endpoints, bool quiet = false);

std::string UseText(const proto::EndpointUse& use);
std::string UseJson(const proto::EndpointUse& use);
// `status` tells which sessions came through the endpoints. `socket` is the daemon's: the directories
// lie beside it. `width` is that of text::Table::ToString().
std::string EndpointsText(const proto::EndpointList& endpoints, const proto::Status& status,
                          const std::string& socket, size_t width = 0);
std::string EndpointsJson(const proto::EndpointList& endpoints, const proto::Status& status,
                          const std::string& socket);

}  // namespace detshare::ctl
