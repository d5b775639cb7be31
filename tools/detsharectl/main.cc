// detsharectl: looks at a running detshared, and at what this build of it supports; verifies programs.
//
// Exit codes: 0, 1 for a daemon that refused or failed, a configuration with mistakes, or a doctor who
// found an error, 2 for a wrong command line, 3 when no daemon answers. `verify` has its own (verify.h).
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "proto/control.grpc.pb.h"
#include "server/config/config_text.h"
#include "tools/detshare/launch.h"
#include "tools/detsharectl/api.h"
#include "tools/detsharectl/config.h"
#include "tools/detsharectl/doctor.h"
#include "tools/detsharectl/status.h"
#include "tools/detsharectl/verify.h"

extern char** environ;

namespace detshare::ctl {
namespace {

constexpr int kExitRefused = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNoDaemon = 3;

struct Options {
  std::string socket;
  bool json = false;
  ApiOptions api;
  VerifyOptions verify;
  std::string config_file;
};

// What stands behind the first `--` is another program's.
std::vector<std::string> TakeCommand(std::vector<std::string>* arguments) {
  const auto mark = std::find(arguments->begin(), arguments->end(), "--");
  if (mark == arguments->end()) return {};
  std::vector<std::string> command(mark + 1, arguments->end());
  arguments->erase(mark, arguments->end());
  return command;
}

std::string DefaultSocket() {
  const char* socket = std::getenv("DETSHARE_SOCKET");
  return socket != nullptr && *socket != '\0' ? socket : "/run/detshare/detshared.sock";
}

grpc::Status AskStatus(const Options& options, proto::Status* status) {
  const auto channel = grpc::CreateChannel("unix:" + options.socket, grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  return proto::Admin::NewStub(channel)->GetStatus(&context, proto::GetStatusRequest(), status);
}

int PrintStatus(const Options& options) {
  proto::Status status;
  const grpc::Status result = AskStatus(options, &status);
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

void AddVerify(CLI::App& app, VerifyOptions& options) {
  CLI::App* const verify = app.add_subcommand(
      "verify", "whether a program reads the same bits back alone and beside neighbours");
  verify->footer(
      "detsharectl verify [OPTIONS] -- PROGRAM [ARGUMENTS...]\n"
      "Exit codes: 0 the same bits, 1 different ones, 2 it could not be run, 3 two runs alone "
      "differ already.");
  verify
      ->add_flag("--standalone{auto}", options.standalone,
                 "with a daemon of its own, in which work moves all the time: --standalone, "
                 "--standalone=soft or --standalone=cuda [with the one that runs]")
      ->check(CLI::IsMember({"auto", "soft", "cuda"}));
  verify->add_option("--policy", options.policy, "of the standalone daemon")->type_name("NAME");
  verify
      ->add_option("--daemon-flag", options.daemon_flags,
                   "of the standalone daemon, as --daemon-flag=--soft-sms=16; may be repeated")
      ->type_name("FLAG");
  verify
      ->add_option("--migrate-every", options.migrate_every,
                   "operations after which work moves to other SMs; 0: when the policy says")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  verify->add_option("--neighbours", options.neighbours, "noisy programs beside it")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  verify->add_option("--runs", options.runs, "beside neighbours")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
}

int PrintDoctor(const Options& options) {
  Host host;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const size_t equals = variable.find('=');
    if (equals != std::string::npos) host.environment[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  host.socket = options.socket;
  host.config_file = options.config_file.empty() ? kDefaultConfigFile : options.config_file;
  host.shim_directories = tools::ShimDirectories(tools::OwnDirectory());
  proto::Status status;
  const grpc::Status result = AskStatus(options, &status);
  if (result.ok()) host.status = status;
  host.no_status = result.error_message();
  const std::vector<Finding> findings = Examine(host);
  std::fputs((options.json ? FindingsJson(findings) : FindingsText(findings)).c_str(), stdout);
  return Broken(findings) ? kExitRefused : 0;
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
  AddVerify(app, options.verify);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  options.verify.command = TakeCommand(&arguments);
  CLI::App* config = app.add_subcommand("config", "the daemon's configuration file (needs no daemon)");
  config->require_subcommand(1);
  CLI::App* check = config->add_subcommand("check", "find mistakes, with line and column");
  CLI::App* show = config->add_subcommand("show", "what holds, defaults included");
  for (CLI::App* command : {check, show}) {
    command->add_option("file", options.config_file, "the file [/etc/detshare/detshare.toml]")->type_name("FILE");
  }
  CLI::App* example = config->add_subcommand("example", "a file to begin with, in which every key is explained");
  CLI::App* doctor = app.add_subcommand("doctor", "what is wrong on this host, and what to do about it");
  doctor->add_option("--config", options.config_file, "the configuration file [/etc/detshare/detshare.toml]")->type_name("FILE");
  doctor->footer("Exit codes: 0, 1 when there is an error. What needs root is \"unknown\" for others.");
  try {
    // CLI11 takes the last argument first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (status->parsed()) return PrintStatus(options);
  if (api->parsed()) return PrintApi(options);
  if (app.get_subcommand("verify")->parsed()) {
    if (options.verify.command.empty()) {
      std::fprintf(stderr, "detsharectl: verify needs a program: detsharectl verify -- PROGRAM\n");
      return kExitUsage;
    }
    options.verify.socket = options.socket;
    options.verify.json = options.json;
    return Verify(options.verify);
  }
  if (check->parsed()) return CheckConfig(options.config_file, options.json);
  if (show->parsed()) return ShowConfig(options.config_file, options.json);
  if (example->parsed()) return std::fputs(ExampleText().c_str(), stdout) < 0 ? kExitRefused : 0;
  if (doctor->parsed()) return PrintDoctor(options);
  return kExitUsage;
}

}  // namespace
}  // namespace detshare::ctl

int main(int argc, char** argv) { return detshare::ctl::Main(argc, argv); }
