// Tells the daemon which pods and containers its tenant endpoints are for. Kubelet names neither when
// it allocates shares, so they are looked up afterwards (pod_resources.proto).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "tools/kubernetes/daemon_link.h"
#include "tools/kubernetes/pod_resources.grpc.pb.h"
#include "tools/kubernetes/shares.h"

namespace detshare::kubernetes {

// The owners of the endpoints of all containers that have shares of these resources, by the
// endpoints' names.
std::map<std::string, proto::Owner> OwnersIn(const v1::ListPodResourcesResponse& pods,
                                             const std::string& domain,
                                             const std::vector<Resource>& resources);

// One thread uses it.
class PodOwners {
 public:
  // `socket` is kubelet's. `daemon` outlives this object.
  PodOwners(std::string socket, std::string domain, std::vector<Resource> resources,
            DaemonLink& daemon);

  // Called often. After an endpoint was opened it asks kubelet at each call until it knows all owners
  // or a minute is over, and otherwise twice a minute. Returns NotFound without a socket, and the
  // error of a call that failed; the caller tries again later. A call that does not ask returns what
  // the last one that asked returned.
  absl::Status Tend();

 private:
  using Clock = std::chrono::steady_clock;

  absl::Status Look(const proto::EndpointList& endpoints);
  bool IsOurs(const proto::TenantEndpoint& endpoint) const;

  const std::string socket_, domain_;
  const std::vector<Resource> resources_;
  DaemonLink& daemon_;
  uint64_t opened_ = 0;  // DaemonLink::opened() when it was last asked
  Clock::time_point opened_at_ = Clock::now(), next_look_;
  absl::Status seen_;  // the result of the last look
};

}  // namespace detshare::kubernetes
