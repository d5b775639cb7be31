// The gRPC service of client processes (proto/control.proto).
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "proto/control.grpc.pb.h"
#include "server/access/acceptor.h"
#include "server/access/identity.h"
#include "server/sessions/session_manager.h"

namespace detshare {

// Runs on gRPC's threads and never makes them wait: sessions are opened and served by their own
// threads.
class ControlService final : public proto::Control::CallbackService {
 public:
  // `directory_for_clients` is the path from the socket's directory, as clients see it, to the
  // runtime directory: "" or a path that ends with a slash. The other arguments outlive this
  // object.
  ControlService(SessionManager& manager, const PeerTable& peers, const Identity& identity,
                 std::string directory_for_clients)
      : manager_(manager),
        peers_(peers),
        identity_(identity),
        directory_for_clients_(std::move(directory_for_clients)) {}

  grpc::ServerWriteReactor<proto::SessionEvent>* OpenSession(
      grpc::CallbackServerContext* context, const proto::OpenSessionRequest* request) override;
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context,
                                 const proto::CallRequest* request,
                                 proto::CallReply* reply) override;
  grpc::ServerUnaryReactor* TakeReply(grpc::CallbackServerContext* context,
                                      const proto::TakeReplyRequest* request,
                                      proto::LongReply* reply) override;

 private:
  class OpenReactor;

  // Null unless the connection of `context` opened the session.
  std::shared_ptr<SessionWorker> FindWorker(const grpc::CallbackServerContext& context,
                                            uint64_t session);
  void NoteRefusal(const proto::OpenSessionRequest& request, const std::optional<Peer>& peer,
                   const std::string& why);

  SessionManager& manager_;
  const PeerTable& peers_;
  const Identity& identity_;
  const std::string directory_for_clients_;
  std::mutex mutex_;
  // Which connection opened which session that is still open. Guarded by mutex_.
  std::map<uint64_t, uint64_t> connections_;
};

// Returns what a new session's client must know about the daemon and its devices.
proto::Grant MakeGrant(const SessionManager& manager, const SessionWorker& worker,
                       uint64_t file_bytes);

}  // namespace detshare
