// detshare-sim: runs the daemon's policies in virtual time, over many devices.
//
// Exit codes: 0; 1 if a trace or a file cannot be used, or the output cannot be written; 2 for a wrong command line.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "policy/placement.h"
#include "policy/registry.h"
#include "proto/command_line.h"
#include "tools/sim/report.h"
#include "tools/sim/simulation.h"

namespace detshare::sim {
namespace {

constexpr int kExitRefused = 1;
constexpr int kExitUsage = 2;
constexpr std::chrono::milliseconds kProgressPeriod(100);

struct Flags {
  Options options;
  std::string trace, csv, json;
  GenerateOptions generate;
  double rate = 0;
  uint32_t services = 0;
  int trainings = -1;
  double hours = 0;
  double slo_tpot_ms = 30, slo_ttft_ms = 1000;
  std::vector<std::string> parameters;
  std::string preemption = "on";
  bool quiet = false;
};

int Refuse(const absl::Status& status, int code) {
  std::fprintf(stderr, "detshare-sim: %s\n", std::string(status.message()).c_str());
  return code;
}

bool Write(const std::string& path, const std::string& text) {
  if (path.empty()) return true;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) std::fprintf(stderr, "detshare-sim: cannot write %s\n", path.c_str());
  return static_cast<bool>(file);
}

int Run(Flags& flags) {
  Options& options = flags.options;
  for (const std::string& parameter : flags.parameters) {
    const size_t equals = parameter.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Refuse(absl::InvalidArgumentError("--param is NAME=VALUE, not " + parameter),
                    kExitUsage);
    }
    options.parameters[parameter.substr(0, equals)] = parameter.substr(equals + 1);
  }
  absl::StatusOr<Trace> trace;
  if (!flags.trace.empty()) {
    trace = ReadTraceFile(flags.trace, options.seed);
  } else {
    flags.generate.hours = flags.hours > 0 ? flags.hours : 1;
    flags.generate.seed = options.seed;
    flags.generate.services =
        flags.services > 0 ? flags.services : static_cast<uint32_t>(2 * options.devices);
    // 6 requests a second are half a million a day, as in the published traces. A few devices can
    // do only fewer.
    flags.generate.rate = flags.rate > 0 ? flags.rate : std::min(6.0, 0.5 * options.devices);
    trace = GenerateTrace(flags.generate);
  }
  if (!trace.ok()) return Refuse(trace.status(), kExitRefused);
  options.hours = flags.hours;
  if (options.hours <= 0) {
    // At a low rate, no request may be generated.
    options.hours =
        trace->requests.empty() ? flags.generate.hours : trace->requests.back().at / 3600 + 1e-3;
  }
  options.trainings = flags.trainings >= 0 ? flags.trainings : options.devices;
  if (flags.preemption == "off") options.device.preemption = 0;
  options.slo_tpot = flags.slo_tpot_ms / 1000;
  options.slo_ttft = flags.slo_ttft_ms / 1000;

  const bool show = !flags.quiet && isatty(STDERR_FILENO) != 0;
  auto shown = std::chrono::steady_clock::time_point::min();
  absl::StatusOr<std::vector<Summary>> summaries =
      Simulate(options, *trace, [&](int done, int all) {
        const auto now = std::chrono::steady_clock::now();
        if (!show || (done < all && now < shown + kProgressPeriod)) return;
        shown = now;
        std::fprintf(stderr, "\r%d of %d simulations of a device%s", done, all,
                     done == all ? "\n" : "");
      });
  if (!summaries.ok()) return Refuse(summaries.status(), kExitUsage);
  std::fputs(Text(*summaries).c_str(), stdout);
  for (const Summary& summary : *summaries) {
    if (!summary.warning.empty())
      std::fprintf(stderr, "detshare-sim: %s\n", summary.warning.c_str());
  }
  // Each file that cannot be written is named.
  const bool csv = Write(flags.csv, Csv(*summaries)), json = Write(flags.json, Json(*summaries));
  return csv && json ? 0 : kExitRefused;
}

int Main(int argc, char** argv) {
  Flags flags;
  Options& options = flags.options;
  options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  CLI::App app("Simulates scheduling policies over many devices, in virtual time.", "detshare-sim");
  app.add_option("--policies", options.policies,
                 "Policies, by name or path of a shared object, with commas between")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--placements", options.placements, "How programs are put on devices")
      ->delimiter(',')
      ->check(CLI::IsMember(policy::PlacementNames()))
      ->capture_default_str();
  app.add_option("--param", flags.parameters,
                 "A parameter, for those policies that have it; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--devices", options.devices, "Number of devices")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--sms", options.device.sm_count, "SMs of a device")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--preemption", flags.preemption, "Whether urgent work stops the work of others")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--hours", flags.hours, "Virtual time, in hours [the trace's, or 1]")
      ->check(NumberIn(1e-4, 8784));
  auto* trace =
      app.add_option("--trace", flags.trace, "A file of a known format, see docs/simulator.md");
  flags.generate.format = "azure-llm";
  app.add_option("--generate", flags.generate.format, "Requests like those of a trace")
      ->check(CLI::IsMember(GeneratedFormats()))
      ->excludes(trace)
      ->capture_default_str();
  app.add_option("--rate", flags.rate,
                 "Generated requests a second in all [0.5 for each device, at most 6]")
      ->check(NumberIn(1e-6, 1e9));
  app.add_option("--services", flags.services, "Generated services [two for each device]")
      ->check(NotNegative());
  app.add_option("--trainings", flags.trainings,
                 "Trainings without end beside them [one for each device]")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--model", options.model.billions, "Parameters of language models, in billions")
      ->check(NumberIn(0.1, 50))
      ->capture_default_str();
  app.add_option("--slo-tpot", flags.slo_tpot_ms, "Time per output token, milliseconds")
      ->check(NumberIn(1e-6, 1e9))
      ->capture_default_str();
  app.add_option("--slo-ttft", flags.slo_ttft_ms, "Time to first token, milliseconds")
      ->check(NumberIn(1e-6, 1e9))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the generated requests")
      ->check(NotNegative())
      ->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Threads that simulate; the result does not depend on them [one for each CPU]")
      ->check(CLI::Range(1, 1024));
  app.add_option("--csv", flags.csv, "Where to write the figures as a table of values")
      ->type_name("FILE");
  app.add_option("--json", flags.json, "Where to write the figures as JSON")->type_name("FILE");
  app.add_flag("--quiet", flags.quiet, "No progress on the terminal");
  if (const std::optional<int> code = ParseCommandLine(app, {argv + 1, argv + argc}, kExitUsage)) {
    return *code;
  }
  return Run(flags);
}

}  // namespace
}  // namespace detshare::sim

int main(int argc, char** argv) {
  return detshare::EndOutput("detshare-sim", detshare::sim::Main(argc, argv));
}
