// The gRPC service of client processes (proto/control.proto).
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "proto/control.grpc.pb.h"
#include "proto/mutex.h"
#include "server/access/peer_table.h"
#include "server/sessions/session_manager.h"

namespace detshare {

// Runs on gRPC's threads and never makes them wait: sessions are opened and served by their own
// threads.
class ControlService final : public proto::Control::CallbackService {
 public:
  // `directory_for_clients` is the path from the socket's directory, as clients see it, to the
  // runtime directory: "" or a path that ends with a slash. `group` is the isolation group whose
  // engine this is; "": none. The other arguments outlive this object.
  ControlService(SessionManager& manager, PeerTable& peers, std::string directory_for_clients,
                 std::string group)
      : manager_(manager),
        peers_(peers),
        directory_for_clients_(std::move(directory_for_clients)),
        group_(std::move(group)) {}

  grpc::ServerWriteReactor<proto::SessionEvent>* OpenSession(
      grpc::CallbackServerContext* context, const proto::OpenSessionRequest* request) override;
  grpc::ServerReadReactor<proto::CallPart>* Call(grpc::CallbackServerContext* context,
                                                 proto::CallReply* reply) override;
  grpc::ServerUnaryReactor* TakeReply(grpc::CallbackServerContext* context,
                                      const proto::TakeReplyRequest* request,
                                      proto::LongReply* reply) override;

 private:
  class OpenReactor;

  // Null unless the connection of `context` opened the session.
  std::shared_ptr<SessionWorker> FindWorker(const grpc::CallbackServerContext& context,
                                            uint64_t session);
  void NoteRefusal(const proto::OpenSessionRequest& request, const absl::StatusOr<Peer>& peer,
                   const std::string& why);

  SessionManager& manager_;
  PeerTable& peers_;
  const std::string directory_for_clients_;
  const std::string group_;
  Mutex mutex_;
  // Which connection opened which session that is still open.
  std::map<uint64_t, uint64_t> connections_ ABSL_GUARDED_BY(mutex_);
};

// Why a client of another ABI version gets no session.
absl::Status WrongVersion(const proto::OpenSessionRequest& request);

// Does not tell whether another connection has such a session.
extern const grpc::Status kNoSuchSession;

// Returns what a new session's client must know about the daemon and its devices.
proto::Grant MakeGrant(const SessionManager& manager, const SessionWorker& worker,
                       uint64_t file_bytes);

}  // namespace detshare
