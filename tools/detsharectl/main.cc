// detsharectl: looks at a running detshared, and at what this build of it supports.
//
// Exit codes: 0, 1 for a daemon that refused or failed, 2 for a wrong command line, 3 when no daemon answers.
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "proto/control.grpc.pb.h"
#include "tools/detsharectl/api.h"
#include "tools/detsharectl/status.h"

namespace detshare::ctl {
namespace {

constexpr int kExitRefused = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNoDaemon = 3;

struct Options {
  std::string socket;
  bool json = false;
  ApiOptions api;
};

std::string DefaultSocket() {
  const char* socket = std::getenv("DETSHARE_SOCKET");
  return socket != nullptr && *socket != '\0' ? socket : "/run/detshare/detshared.sock";
}

int PrintStatus(const Options& options) {
  const auto channel = grpc::CreateChannel("unix:" + options.socket, grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  proto::Status status;
  const grpc::Status result = proto::Admin::NewStub(channel)->GetStatus(&context, proto::GetStatusRequest(), &status);
  if (result.error_code() == grpc::StatusCode::UNAVAILABLE || result.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    std::fprintf(stderr,
                 "detsharectl: no detshared answers at %s\n"
                 "Start it (systemctl start detshared), or name another socket with --socket or DETSHARE_SOCKET.\n",
                 options.socket.c_str());
    return kExitNoDaemon;
  }
  if (!result.ok()) {
    std::fprintf(stderr, "detsharectl: detshared refused: %s\n", result.error_message().c_str());
    return kExitRefused;
  }
  std::fputs((options.json ? StatusJson(status) : StatusText(status)).c_str(), stdout);
  return 0;
}

int PrintApi(const Options& options) {
  std::fputs((options.json ? ApiJson(options.api) : ApiText(options.api)).c_str(), stdout);
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  options.socket = DefaultSocket();
  CLI::App app("Looks at a running detshared.", "detsharectl");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--socket", options.socket, "the daemon's socket")->capture_default_str();
  app.add_flag("--json", options.json, "print JSON");
  CLI::App* status = app.add_subcommand("status", "sessions, devices, memory, operations");
  CLI::App* api = app.add_subcommand("api", "the driver entry points and how far each is supported (needs no daemon)");
  api->add_flag("--unsupported", options.api.unsupported, "only what is not supported in full, with the reason");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (status->parsed()) return PrintStatus(options);
  if (api->parsed()) return PrintApi(options);
  return kExitUsage;
}

}  // namespace
}  // namespace detshare::ctl

int main(int argc, char** argv) { return detshare::ctl::Main(argc, argv); }
