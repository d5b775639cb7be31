// One control call over gRPC (rpc Call of proto/control.proto), from its first part to its reply.
//
// The daemon reads the parts after the first one when the call's turn has come and there is room for
// the whole payload (SessionWorker). Until then gRPC's flow control lets the client wait.
//
// Threading: gRPC's threads, one at a time, and the session's worker between a part and the next
// one. Lifetime: deletes itself when gRPC is done with it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "proto/control.pb.h"
#include "server/session/session_worker.h"

namespace detshare {

class ControlCallReactor final : public grpc::ServerReadReactor<proto::CallPart> {
 public:
  // Returns the session with that number if the caller's connection opened it, else null.
  using FindWorker = std::function<std::shared_ptr<SessionWorker>(uint64_t session)>;

  // gRPC owns `reply`.
  ControlCallReactor(FindWorker find, proto::CallReply* reply);
  void OnReadDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  ~ControlCallReactor() override = default;

  grpc::Status Begin();
  grpc::Status Append();
  uint64_t rest_bytes() const { return request_.payload_bytes() - payload_->size(); }
  // Gives the call to the session's worker.
  grpc::Status Submit();
  void Reply(int result, std::string body);

  FindWorker find_;  // null after the first part
  proto::CallReply* const reply_;
  proto::CallPart part_;  // the part that gRPC reads
  proto::CallRequest request_;
  // Weak, because a client can leave its call half sent for longer than the session lives.
  std::weak_ptr<SessionWorker> worker_;
  const std::shared_ptr<std::string> payload_ = std::make_shared<std::string>();
  CallRoom room_;                   // for the payload, from its second part on
  bool room_taken_ = false;         // the worker has passed on the room
  std::shared_ptr<Quota> replies_;  // counts the reply until it is sent
  QuotaCharge unsent_;
};

}  // namespace detshare
