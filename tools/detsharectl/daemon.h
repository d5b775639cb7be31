// A call to the daemon, and what people are told when it fails.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "proto/admin.grpc.pb.h"

namespace detshare::ctl {

// Exit codes.
inline constexpr int kExitRefused = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoDaemon = 3;

inline std::unique_ptr<proto::Admin::Stub> AdminAt(const std::string& socket) {
  // Events and traces have no bound but the daemon's.
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return proto::Admin::NewStub(
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
}

// 0, or an exit code after a message.
inline int Explain(const grpc::Status& result, const std::string& socket) {
  if (result.ok()) return 0;
  if (result.error_code() == grpc::StatusCode::UNAVAILABLE ||
      result.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    std::fprintf(stderr,
                 "detsharectl: no detshared answers at %s\n"
                 "Start it (systemctl start detshared), or name another socket with --socket or "
                 "DETSHARE_SOCKET.\n",
                 socket.c_str());
    return kExitNoDaemon;
  }
  std::fprintf(stderr, "detsharectl: detshared refused: %s\n", result.error_message().c_str());
  return kExitRefused;
}

// `call(stub, context)` is one call of the service. 0, or an exit code after a message.
template <typename Call>
int CallAdmin(const std::string& socket, Call call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  return Explain(call(*AdminAt(socket), &context), socket);
}

}  // namespace detshare::ctl
