// Calls the daemon's Admin service, and prints a message if a call fails.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "proto/admin.grpc.pb.h"

namespace detshare::ctl {

// Exit codes of detsharectl.
inline constexpr int kExitRefused = 1;  // the daemon, or the system on its behalf, refused the call
inline constexpr int kExitUsage = 2;    // the command line is wrong
inline constexpr int kExitNoDaemon = 3;  // no daemon replies at the socket

// A stub for the daemon at `socket`. Connects with the first call.
std::unique_ptr<proto::Admin::Stub> AdminAt(const std::string& socket);

// Why a call has failed, and what the user can do.
struct Failure {
  std::string text;
  std::string hint;  // "": the text says it
  int exit_code = 0;
};
// Returns the failure of a call at `socket` that did not succeed. If nothing has replied, tries to
// connect once more to find out why.
Failure FailureOf(const grpc::Status& result, const std::string& socket);

// Returns 0 if the call succeeded. Otherwise prints a message on stderr and returns an exit code.
int Explain(const grpc::Status& result, const std::string& socket);

// Returns the daemon's warning about the call that was made with `context`; "" if there is none.
std::string WarningOf(const grpc::ClientContext& context);
// Prints that warning on stderr.
void PrintWarning(const grpc::ClientContext& context);

// `call(stub, context)` makes one call of the service; it may take ten seconds. Prints the daemon's
// warning if there is one. Returns 0, or an exit code after a message.
template <typename Call>
int CallAdmin(const std::string& socket, Call call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const grpc::Status result = call(*AdminAt(socket), &context);
  PrintWarning(context);
  return Explain(result, socket);
}

}  // namespace detshare::ctl
