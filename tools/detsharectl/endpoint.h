// `detsharectl endpoint`: opens, closes and lists tenant endpoints, which are sockets for
// containers.
#pragma once

#include <string>
#include <vector>

#include "proto/tenant_endpoint.pb.h"
#include "tools/detsharectl/settings.h"

namespace detshare::ctl {

struct EndpointOptions {
  std::string socket;  // of the daemon
  bool json = false;
  std::string name;                  // of the endpoint
  std::vector<std::string> devices;  // indices or UUIDs; empty: all
  TenantFlags tenant;                // an empty name: the endpoint's name
};

// All three return an exit code. After an error, a message is on stderr. OpenEndpoint() prints the
// endpoint's directory, and first closes an endpoint of the same name. CloseEndpoint() ends the
// endpoint's sessions, and prints what they have used.
int OpenEndpoint(const EndpointOptions& options);
int CloseEndpoint(const EndpointOptions& options);
int PrintEndpoints(const EndpointOptions& options);

// Gets the open endpoints. Returns 0, or an exit code; after an error a message is on stderr, unless
// `quiet`.
int GetEndpoints(const std::string& socket, proto::EndpointList* endpoints, bool quiet = false);

std::string UseText(const proto::EndpointUse& use);
std::string UseJson(const proto::EndpointUse& use);
std::string EndpointsText(const proto::EndpointList& endpoints);
std::string EndpointsJson(const proto::EndpointList& endpoints);

}  // namespace detshare::ctl
