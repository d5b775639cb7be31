// Calls the daemon's Admin service, and prints a message if a call fails.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "proto/admin.grpc.pb.h"

namespace detshare::ctl {

// Exit codes of detsharectl.
inline constexpr int kExitRefused = 1;   // the daemon refused the call
inline constexpr int kExitUsage = 2;     // the command line is wrong
inline constexpr int kExitNoDaemon = 3;  // no daemon replies at the socket

// A stub for the daemon at `socket`. Connects with the first call.
inline std::unique_ptr<proto::Admin::Stub> AdminAt(const std::string& socket) {
  // Only the daemon bounds the size of events and traces.
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return proto::Admin::NewStub(
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
}

// Returns 0 if the call succeeded. Otherwise prints a message on stderr and returns an exit code.
inline int Explain(const grpc::Status& result, const std::string& socket) {
  if (result.ok()) return 0;
  if (result.error_code() == grpc::StatusCode::UNAVAILABLE ||
      result.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    std::fprintf(stderr,
                 "detsharectl: no detshared replies at %s\n"
                 "Start it (systemctl start detshared), or name another socket with --socket or "
                 "DETSHARE_SOCKET.\n",
                 socket.c_str());
    return kExitNoDaemon;
  }
  std::fprintf(stderr, "detsharectl: detshared refused: %s\n", result.error_message().c_str());
  return kExitRefused;
}

// `call(stub, context)` makes one call of the service; it may take ten seconds. Returns 0, or an
// exit code after a message.
template <typename Call>
int CallAdmin(const std::string& socket, Call call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  return Explain(call(*AdminAt(socket), &context), socket);
}

}  // namespace detshare::ctl
