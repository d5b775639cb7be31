// The messages between the supervisor and an engine, over a socketpair that keeps message
// boundaries:
//
//     supervisor --[a connection, and what was decided]--> engine    for each program that connects
//     supervisor --[an endpoint was closed]--------------> engine
//     supervisor --[an order: end, release, reload]------> engine
//     supervisor --[adoption, and the other channels]----> engine    a later supervisor's first one
//     supervisor --[the page of another engine]----------> engine    engine_page.h
//     supervisor --[which engines there are]-------------> engine
//     supervisor --[another engine wants device memory]--> engine
//     supervisor --[another engine serves a tenant, too]-> engine    tenant_board.h
//     supervisor --[the isolation group that it serves]--> engine    to a spare engine
//     supervisor <--[how many connections it has got]----- engine    the engine offers to end: idle
//     supervisor <--[an event of a session]--------------- engine
//     supervisor <--[what was used behind an endpoint]---- engine
//     supervisor <--[a device is lost]-------------------- engine
//     supervisor <--[it wants no further connections]----- engine
//     supervisor <--[its page]---------------------------- engine    its first message
//     supervisor <--[it wants device memory]-------------- engine
//     supervisor --(end of file)-------------------------> engine    the supervisor is gone
//
// The supervisor accepts the offer only if the engine has received all connections that were sent,
// so no connection is lost. An engine whose supervisor is gone serves its sessions until the next
// supervisor connects to its socket (engine_process.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/tenant_endpoint.h"
#include "server/base/event_log.h"

namespace detshare {

// A supervisor adopts engines with the same number. It changes with the meaning of messages on the
// channels; fields that an older program may ignore do not change it.
inline constexpr uint32_t kEngineProtocol = 5;

// The two ends. Both are closed on exec. Neither blocks.
struct EngineChannel {
  int supervisor = -1, engine = -1;
};
absl::StatusOr<EngineChannel> MakeEngineChannel();

// A program's connection, with what the supervisor has decided about it.
struct ClientConnection {
  int fd = -1;  // not owned
  std::string tenant;
  std::shared_ptr<TenantEndpoint> endpoint;  // null: it came by the main socket
  // As in Peer. The engine reads the first two from the connection.
  pid_t pid = 0;
  uid_t uid = 0;
  uint64_t pid_namespace = 0;
  std::string ticket;  // made by Engines
};

enum class EngineOrder { kEnd, kRelease, kReload };  // proto::EngineOrder

// All engines whose pages count.
struct EngineProcesses {
  std::vector<pid_t> pids;
  std::vector<pid_t> spares;  // those of them that serve no isolation group yet
};

// What a spare engine serves from now on.
struct Assignment {
  std::string group;
  std::string directory;  // the new name of its directory
  std::string cache;  // its working directory from then on, where the driver keeps code; "": any
};

// ---- the supervisor's end. All of these return Unavailable if the engine does not read or is gone.
absl::Status PassConnection(int channel, const ClientConnection& connection);
absl::Status PassClosedEndpoint(int channel, uint64_t endpoint);
absl::Status PassOrder(int channel, EngineOrder order);
absl::Status PassAdoption(int channel, int admission, int files);
absl::Status PassPeer(int channel, pid_t peer, int page);
absl::Status PassPeers(int channel, const EngineProcesses& peers);
absl::Status PassLookForRoom(int channel);
absl::Status PassSharedTenant(int channel, pid_t peer, const std::string& tenant);
absl::Status PassAssignment(int channel, const Assignment& assignment);
struct Reported {
  bool end = false;  // no further message will come
  bool device_lost = false;
  bool retires = false;            // the group's further connections are for another engine
  bool wants_room = false;         // the other engines shall look at the memory of their devices
  std::optional<bool> may_retire;  // they wait until this is false, or the engine retires
  std::optional<uint64_t> offer;   // how many connections the engine has received
  std::optional<DaemonEvent> event;
  struct Use {
    uint64_t endpoint = 0;  // its number
    EndpointUse::Figures figures;
  };
  std::optional<Use> use;
  int page = -1;  // the engine's page; the receiver owns it, and checks it
};
// Returns the next message; nothing if there is none. Does not block.
std::optional<Reported> TakeReport(int channel);

// ---- the engine's end
struct Received {
  bool any = false;  // a message has come
  bool end = false;  // no further message will come
  // The receiver owns the descriptor, which is -1 if the process had no free one for it. The
  // endpoint has what the supervisor knows of it.
  std::optional<ClientConnection> connection;
  std::optional<uint64_t> closed_endpoint;
  std::optional<EngineOrder> order;
  // The engine's ends of the new channels, which the receiver owns.
  int admission = -1, files = -1;
  // Another engine and its page, which the receiver owns, and checks.
  struct Peer {
    pid_t pid = -1;
    int page = -1;
  };
  std::optional<Peer> peer;
  std::optional<EngineProcesses> peers;
  bool look_for_room = false;
  struct SharedTenant {
    pid_t peer = -1;
    std::string tenant;
  };
  std::optional<SharedTenant> shared_tenant;
  std::optional<Assignment> assignment;
};
Received TakeMessage(int channel);
// None of them waits. An offer that cannot be sent is made again later. An event that cannot be sent
// stays in the engine's own log only.
void OfferToEnd(int channel, uint64_t received);
void ReportEvent(int channel, const DaemonEvent& event);
absl::Status ReportUse(int channel, uint64_t endpoint, const EndpointUse::Figures& figures);
void ReportDeviceLoss(int channel);
void ReportRetirement(int channel);
void ReportWantsRoom(int channel);
void ReportMayRetire(int channel, bool may_retire);
absl::Status ReportPage(int channel, int page);

}  // namespace detshare
