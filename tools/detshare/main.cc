// detshare: runs unmodified CUDA programs through DetShare.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "proto/command_line.h"
#include "tools/detshare/execute.h"
#include "tools/detshare/launch.h"

namespace {

constexpr std::array<const char*, 3> kStandalone = {"auto", "soft", "cuda"};
constexpr char kUsage[] = "detshare run [OPTIONS] -- PROGRAM [ARGUMENTS...]";

// The index where the program begins: of the first `--` or, behind `run`, of the first argument that
// is neither an option nor an option's value.
size_t FindProgram(const std::vector<std::string>& arguments) {
  // A mistake in front of `--` is none of the program's arguments.
  if (arguments.empty() || arguments.front() != "run")
    return std::find(arguments.begin(), arguments.end(), "--") - arguments.begin();
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind('-', 0) != 0 || argument == "--") return i;
    const bool takes_next = argument == "--tenant" || argument == "--device" ||
                            argument == "--devices" || argument == "--socket" ||
                            argument == "--log-level" || argument == "--digest-log";
    if (takes_next) ++i;
  }
  return arguments.size();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  detshare::tools::RunOptions options;
  CLI::App app("Runs CUDA programs through DetShare.", "detshare");
  app.require_subcommand(1);
  app.fallthrough();  // for --version
  CLI::App* run = app.add_subcommand("run", "Run a program, whose CUDA calls detshared serves");
  run->footer(kUsage);
  run->add_option("--tenant", options.tenant, "Ask for this tenant's class and limits")
      ->type_name("TENANT");
  run->add_option("--device", options.devices,
                  "Show only this device (index or UUID); may be repeated")
      ->type_name("N");
  run->add_option("--devices", options.device_count,
                  "Show this many of the devices; the daemon chooses the same devices for all "
                  "processes of this command; 0: as many as the tenant may have [0]")
      ->type_name("N")
      ->check(CLI::Range(0, 64));
  CLI::Option* const socket =
      run->add_option("--socket", options.socket,
                      "The daemon's socket [$DETSHARE_SOCKET, else /run/detshare/detshared.sock]")
          ->type_name("PATH");
  run->add_flag("--standalone{auto}", options.standalone,
                "Start a private daemon for this command: --standalone, --standalone=soft or "
                "--standalone=cuda")
      ->excludes(socket)
      ->check(CLI::IsMember(std::vector<std::string>(kStandalone.begin(), kStandalone.end())));
  run->add_option("--log-level", options.log_level, "Messages of DetShare on stderr")
      ->check(CLI::IsMember({"error", "warning", "info", "debug"}));
  run->add_flag("--digest{-}", options.digest,
                "Write the SHA-256 of all that the program reads back from its GPUs, at its end: "
                "--digest to stderr, --digest=FILE to a file, with a line for each process")
      ->type_name("FILE");
  run->add_option("--digest-log", options.digest_log,
                  "Write a line for each read of the program, with its SHA-256 and the kernel "
                  "before it")
      ->type_name("FILE");

  const size_t program = FindProgram(arguments);
  size_t first = program;
  if (first < arguments.size() && arguments[first] == "--") ++first;
  options.command.assign(arguments.begin() + first, arguments.end());
  // The option takes its value behind a "=".
  if (program > 0 && arguments[program - 1] == "--standalone" && first == program &&
      first < arguments.size() &&
      std::count(kStandalone.begin(), kStandalone.end(), arguments[first]) != 0) {
    std::fprintf(stderr,
                 "detshare: write --standalone=%s, or, for a program of this name, --standalone -- "
                 "%s\n",
                 arguments[first].c_str(), arguments[first].c_str());
    return detshare::tools::kExitLauncher;
  }
  arguments.resize(program);
  detshare::RefuseEmptyValues(app);
  if (const std::optional<int> code =
          detshare::ParseCommandLine(app, arguments, detshare::tools::kExitLauncher)) {
    return *code;
  }
  if (options.command.empty()) {
    std::fprintf(stderr, "detshare: no program given: %s\n", kUsage);
    return detshare::tools::kExitLauncher;
  }
  return detshare::tools::Run(options);
}
