#include "server/engines/engine_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/engine.pb.h"
#include "server/base/errno_text.h"
#include "server/base/event_message.h"
#include "server/engines/message_socket.h"

namespace detshare {
namespace {

// Returns nothing for an order of a later program.
std::optional<EngineOrder> OrderOf(proto::EngineOrder order) {
  switch (order) {
    case proto::ENGINE_ORDER_END:
      return EngineOrder::kEnd;
    case proto::ENGINE_ORDER_RELEASE:
      return EngineOrder::kRelease;
    case proto::ENGINE_ORDER_RELOAD:
      return EngineOrder::kReload;
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<EngineChannel> MakeEngineChannel() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("socketpair: ", ErrnoText(errno)));
  return EngineChannel{ends[0], ends[1]};
}

absl::Status PassConnection(int channel, const ClientConnection& connection) {
  proto::ToEngine message;
  message.mutable_arrival()->set_tenant(connection.tenant);
  message.mutable_arrival()->set_pid_namespace(connection.pid_namespace);
  message.mutable_arrival()->set_ticket(connection.ticket);
  std::vector<int> fds = {connection.fd};
  if (connection.endpoint != nullptr) {
    proto::PassedEndpoint* const endpoint = message.mutable_arrival()->mutable_endpoint();
    endpoint->set_number(connection.endpoint->number);
    endpoint->set_name(connection.endpoint->name);
    for (const std::string& id : connection.endpoint->device_ids) endpoint->add_device_ids(id);
    fds.push_back(connection.endpoint->sessions_fd);
  }
  return SendMessage(channel, message, fds);
}

absl::Status PassClosedEndpoint(int channel, uint64_t endpoint) {
  proto::ToEngine message;
  message.set_closed_endpoint(endpoint);
  return SendMessage(channel, message, {});
}

absl::Status PassOrder(int channel, EngineOrder order) {
  proto::ToEngine message;
  switch (order) {
    case EngineOrder::kEnd:
      message.set_order(proto::ENGINE_ORDER_END);
      break;
    case EngineOrder::kRelease:
      message.set_order(proto::ENGINE_ORDER_RELEASE);
      break;
    case EngineOrder::kReload:
      message.set_order(proto::ENGINE_ORDER_RELOAD);
      break;
  }
  return SendMessage(channel, message, {});
}

absl::Status PassAdoption(int channel, int admission, int files) {
  proto::ToEngine message;
  message.set_adoption(true);
  return SendMessage(channel, message, {admission, files});
}

absl::Status PassPeer(int channel, pid_t peer, int page) {
  proto::ToEngine message;
  message.set_peer(peer);
  return SendMessage(channel, message, {page});
}

absl::Status PassPeers(int channel, const EngineProcesses& peers) {
  proto::ToEngine message;
  proto::Peers* const all = message.mutable_peers();
  for (const pid_t peer : peers.pids) all->add_pids(peer);
  for (const pid_t spare : peers.spares) all->add_spares(spare);
  return SendMessage(channel, message, {});
}

absl::Status PassLookForRoom(int channel) {
  proto::ToEngine message;
  message.set_look_for_room(true);
  return SendMessage(channel, message, {});
}

absl::Status PassSharedTenant(int channel, pid_t peer, const std::string& tenant) {
  proto::ToEngine message;
  message.mutable_shared_tenant()->set_pid(peer);
  message.mutable_shared_tenant()->set_tenant(tenant);
  return SendMessage(channel, message, {});
}

absl::Status PassAssignment(int channel, const Assignment& assignment) {
  proto::ToEngine message;
  message.mutable_assignment()->set_group(assignment.group);
  message.mutable_assignment()->set_directory(assignment.directory);
  message.mutable_assignment()->set_cache(assignment.cache);
  return SendMessage(channel, message, {});
}

std::optional<Reported> TakeReport(int channel) {
  std::vector<char> bytes;
  Descriptors fds;
  const ssize_t count = ReceiveMessage(channel, &bytes, &fds);
  if (count < 0) return std::nullopt;
  Reported reported;
  reported.end = count == 0;
  proto::FromEngine message;
  // An engine runs what clients send it, so its messages may be anything.
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(count))) return reported;
  if (message.has_offer()) reported.offer = message.offer();
  if (message.has_event()) reported.event = FromMessage(message.event());
  if (message.has_use()) {
    const proto::EndpointUse& use = message.use().use();
    reported.use = {message.use().endpoint(),
                    {use.sessions(), std::max<int64_t>(0, use.gpu_time_ns()), use.peak_memory()}};
  }
  reported.device_lost = message.device_lost();
  reported.retires = message.retires();
  reported.wants_room = message.wants_room();
  if (message.has_may_retire()) reported.may_retire = message.may_retire();
  if (message.engine_page()) reported.page = fds.Take();
  return reported;
}

Received TakeMessage(int channel) {
  std::vector<char> bytes;
  Descriptors fds;
  const ssize_t count = ReceiveMessage(channel, &bytes, &fds);
  Received received;
  if (count < 0) {
    received.end = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    return received;
  }
  received.any = count > 0;
  received.end = count == 0;
  proto::ToEngine message;
  // The supervisor is the same program or a later one, so every message is sound.
  if (!received.any || !message.ParseFromArray(bytes.data(), static_cast<int>(count)))
    return received;
  if (message.has_arrival()) {
    ClientConnection& connection = received.connection.emplace();
    connection.fd = fds.Take();
    connection.tenant = message.arrival().tenant();
    connection.pid_namespace = message.arrival().pid_namespace();
    connection.ticket = message.arrival().ticket();
    if (message.arrival().has_endpoint()) {
      const proto::PassedEndpoint& passed = message.arrival().endpoint();
      auto endpoint = std::make_shared<TenantEndpoint>();
      endpoint->number = passed.number();
      endpoint->name = passed.name();
      endpoint->tenant = connection.tenant;
      endpoint->device_ids = {passed.device_ids().begin(), passed.device_ids().end()};
      endpoint->sessions_fd = fds.Take();
      endpoint->sessions_directory = absl::StrCat("/proc/self/fd/", endpoint->sessions_fd);
      connection.endpoint = std::move(endpoint);
    }
  } else if (message.has_closed_endpoint()) {
    received.closed_endpoint = message.closed_endpoint();
  } else if (message.has_order()) {
    received.order = OrderOf(message.order());
  } else if (message.adoption()) {
    received.admission = fds.Take();
    received.files = fds.Take();
  } else if (message.has_peer()) {
    received.peer = {static_cast<pid_t>(message.peer()), fds.Take()};
  } else if (message.has_peers()) {
    const proto::Peers& peers = message.peers();
    received.peers = {{peers.pids().begin(), peers.pids().end()},
                      {peers.spares().begin(), peers.spares().end()}};
  } else if (message.look_for_room()) {
    received.look_for_room = true;
  } else if (message.has_shared_tenant()) {
    received.shared_tenant = {static_cast<pid_t>(message.shared_tenant().pid()),
                              message.shared_tenant().tenant()};
  } else if (message.has_assignment()) {
    received.assignment = {message.assignment().group(), message.assignment().directory(),
                           message.assignment().cache()};
  }
  return received;
}

void OfferToEnd(int channel, uint64_t received) {
  proto::FromEngine message;
  message.set_offer(received);
  SendMessage(channel, message, {}).IgnoreError();
}

void ReportEvent(int channel, const DaemonEvent& event) {
  proto::FromEngine message;
  *message.mutable_event() = ToMessage(event);
  SendMessage(channel, message, {}).IgnoreError();
}

absl::Status ReportUse(int channel, uint64_t endpoint, const EndpointUse::Figures& figures) {
  proto::FromEngine message;
  message.mutable_use()->set_endpoint(endpoint);
  proto::EndpointUse* const use = message.mutable_use()->mutable_use();
  use->set_sessions(figures.sessions);
  use->set_gpu_time_ns(figures.gpu_time);
  use->set_peak_memory(figures.peak_memory);
  return SendMessage(channel, message, {});
}

absl::Status ReportPage(int channel, int page) {
  proto::FromEngine message;
  message.set_engine_page(true);
  return SendMessage(channel, message, {page});
}

void ReportRetirement(int channel) {
  proto::FromEngine message;
  message.set_retires(true);
  SendMessage(channel, message, {}).IgnoreError();
}

void ReportWantsRoom(int channel) {
  proto::FromEngine message;
  message.set_wants_room(true);
  SendMessage(channel, message, {}).IgnoreError();
}

void ReportMayRetire(int channel, bool may_retire) {
  proto::FromEngine message;
  message.set_may_retire(may_retire);
  SendMessage(channel, message, {}).IgnoreError();
}

void ReportDeviceLoss(int channel) {
  proto::FromEngine message;
  message.set_device_lost(true);
  SendMessage(channel, message, {}).IgnoreError();
}

}  // namespace detshare
