// Prints the costs of basic driver calls, natively and through the shim, side by side.
//
// The parent process measures nothing itself. In each round it starts `driver --measure` once
// natively and once under `detshare run --standalone`. It prints the medians of the rounds.
#include <dlfcn.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/command_line.h"
#include "tools/bench/driver_measure.h"

namespace detshare::bench {
namespace {

struct Options {
  MeasureOptions measure;
  bool measure_here = false;
  std::string detshare;  // path of the launcher
  std::string backend;   // soft or cuda; "": cuda if there is a native driver, otherwise soft
  int rounds = 3;
  bool json = false;
};

std::string OwnPath() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, length) : std::string();
}

// The launcher. It is beside this program in a bundle, and in the runfiles in a build tree.
std::string FindLauncher() {
  const std::string own = OwnPath();
  const std::string folder = own.substr(0, own.rfind('/'));
  for (const std::string& candidate :
       {absl::StrCat(folder, "/detshare"), absl::StrCat(folder, "/../detshare/detshare"),
        absl::StrCat(folder, "/driver.runfiles/detshare/tools/detshare/detshare")}) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "detshare";
}

std::string Quoted(const std::string& word) {
  std::string out = "'";
  for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Runs a command that prints lines `name<TAB>value`, and adds the values. False if the command
// failed.
bool Collect(const std::string& command, std::map<std::string, std::vector<double>>& into) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return false;
  char line[512];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    double value;
    if (fields.size() == 2 && absl::SimpleAtod(fields[1], &value)) into[fields[0]].push_back(value);
  }
  return pclose(pipe) == 0;
}

bool NativeDriverExists() {
  void* handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return false;
  const bool ours = dlsym(handle, "detshare_shim_version") != nullptr;
  dlclose(handle);
  return !ours;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int MeasureHere(const Options& options) {
  const auto result = Measure(options.measure);
  if (!result.ok()) {
    std::fprintf(stderr, "driver bench: %s\n", std::string(result.status().message()).c_str());
    return 1;
  }
  for (const Measurement& measurement : *result)
    std::printf("%s\t%.6g\n", measurement.name.c_str(), measurement.value);
  return 0;
}

std::string Verdict(const Metric& metric, double native, double shim) {
  if (metric.budget_factor == 0 || native == 0) return "-";
  const double bound = native * metric.budget_factor + metric.budget_extra;
  const bool kept = metric.smaller_is_better ? shim <= bound : shim >= bound;
  return absl::StrCat(kept ? "kept" : "MISSED");
}

int Compare(const Options& options) {
  const bool native_exists = options.backend != "soft" && NativeDriverExists();
  if (!native_exists) std::fprintf(stderr, "no native driver here: only the shim is measured\n");
  const std::string arguments =
      absl::StrCat(" --measure --bulk-mib ", options.measure.bulk_bytes >> 20, " --launches ",
                   options.measure.launches, " --round-trips ", options.measure.round_trips);
  const std::string own = Quoted(OwnPath());
  const std::string standalone =
      options.backend.empty() ? (native_exists ? "cuda" : "soft") : options.backend;
  std::map<std::string, std::vector<double>> native, shim;
  for (int round = 0; round < options.rounds; ++round) {
    std::fprintf(stderr, "round %d of %d\n", round + 1, options.rounds);
    if (native_exists && !Collect(absl::StrCat(own, arguments), native)) return 1;
    if (!Collect(absl::StrCat(Quoted(options.detshare), " run --standalone=", standalone, " -- ",
                              own, arguments),
                 shim))
      return 1;
  }
  if (options.json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const Metric& metric : Metrics()) {
      nlohmann::json row{
          {"metric", metric.name}, {"unit", metric.unit}, {"shim", Median(shim[metric.name])}};
      if (native_exists) row["native"] = Median(native[metric.name]);
      if (native_exists)
        row["budget"] = Verdict(metric, Median(native[metric.name]), Median(shim[metric.name]));
      rows.push_back(row);
    }
    std::printf("%s\n", rows.dump(2).c_str());
    return 0;
  }
  std::printf("%-34s %-5s %12s %12s %8s  %s\n", "what", "unit", "native", "shim", "ratio",
              "budget");
  for (const Metric& metric : Metrics()) {
    const double with_shim = Median(shim[metric.name]);
    if (!native_exists) {
      std::printf("%-34s %-5s %12s %12.2f %8s  -\n", metric.name, metric.unit, "-", with_shim, "-");
      continue;
    }
    const double natively = Median(native[metric.name]);
    std::printf("%-34s %-5s %12.2f %12.2f %7.2fx  %s\n", metric.name, metric.unit, natively,
                with_shim, natively == 0 ? 0 : with_shim / natively,
                Verdict(metric, natively, with_shim).c_str());
  }
  return 0;
}

}  // namespace
}  // namespace detshare::bench

int main(int argc, char** argv) {
  detshare::bench::Options options;
  options.detshare = detshare::bench::FindLauncher();
  uint64_t bulk_mib = options.measure.bulk_bytes >> 20;
  CLI::App app("Measures basic driver calls, natively and through the shim.", "detshare-bench");
  app.add_flag("--measure", options.measure_here,
               "Measure only the libcuda.so.1 that this process finds, and print raw values");
  app.add_option("--library", options.measure.library, "With --measure: the library to open")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--bulk-mib", bulk_mib, "Size of the bulk copies in MiB")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--launches", options.measure.launches, "Launches of the throughput test")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--round-trips", options.measure.round_trips, "Samples of each round trip")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds,
                 "Number of rounds, in which native and shim take turns; the table has the medians")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--detshare", options.detshare, "The launcher")
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--backend", options.backend, "The GPU [cuda if there is a driver, else soft]")
      ->check(CLI::IsMember({"soft", "cuda"}));
  app.add_flag("--json", options.json, "Print JSON");
  if (const std::optional<int> code =
          detshare::ParseCommandLine(app, {argv + 1, argv + argc}, /*usage_code=*/2)) {
    return *code;
  }
  options.measure.bulk_bytes = bulk_mib << 20;
  return options.measure_here ? detshare::bench::MeasureHere(options)
                              : detshare::bench::Compare(options);
}
