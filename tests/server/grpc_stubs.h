// The services of a daemon, for tests that ask them without the fixture's help.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "proto/admin.grpc.pb.h"
#include "proto/call_parts.h"
#include "proto/control.grpc.pb.h"
#include "tests/server/daemon_fixture.h"

namespace detshare {

inline std::unique_ptr<proto::Admin::Stub> AdminOf(TestClient& client) {
  return proto::Admin::NewStub(client.channel());
}

inline std::unique_ptr<proto::Control::Stub> ControlOf(TestClient& client) {
  return proto::Control::NewStub(client.ClientChannel());
}

// Makes a control call whose payload crosses in parts. Sets the request's size of the payload. The
// call may take as long as `timeout`; 0: any time.
inline grpc::Status CallInParts(proto::Control::Stub& stub, proto::CallRequest request,
                                std::string_view payload, proto::CallReply* reply,
                                std::chrono::milliseconds timeout = {}) {
  request.set_payload_bytes(payload.size());
  grpc::ClientContext context;
  if (timeout.count() != 0) context.set_deadline(std::chrono::system_clock::now() + timeout);
  const auto writer = stub.Call(&context, reply);
  proto::CallPart part;
  *part.mutable_request() = std::move(request);
  size_t room = kFirstCallPartBytes;
  do {
    part.set_payload(std::string(payload.substr(0, room)));
    payload.remove_prefix(part.payload().size());
    room = kCallPartBytes;
    const bool sent = writer->Write(part);
    part.Clear();
    if (!sent) break;
  } while (!payload.empty());
  writer->WritesDone();
  return writer->Finish();
}

}  // namespace detshare
