// detshare-trial: two programs share the GPU, natively and through DetShare, and a table compares.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "proto/command_line.h"
#include "tools/detshare/launch.h"
#include "tools/detshare/private_daemon.h"
#include "tools/text/table.h"
#include "tools/trial/program.h"

namespace detshare::trial {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kTrial[] = "detshare-trial";
// For the start of a program, and what it takes longer than it is told.
constexpr absl::Duration kPatience = absl::Seconds(120);
constexpr char kTenants[] = R"([policy]
name = "priority"

[[tenant]]
name = "inference"
class = "latency"

[[tenant]]
name = "training"
class = "batch"
)";

struct Options {
  double seconds = 10;
  std::string backend = "auto";
  bool json = false;
};

// What one run of the inference, the training or both has measured. Nothing for a program that did
// not run.
struct Row {
  std::string name;
  std::optional<json> inference, training;
};

int Fail(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", kTrial, why.c_str());
  return 1;
}

// Whether native programs share the GPU through MPS, and not by time-slicing.
bool MpsRuns() {
  const char* set = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string directory = set != nullptr && *set != '\0' ? set : "/tmp/nvidia-mps";
  return access((directory + "/control").c_str(), F_OK) == 0;
}

// A file that only this process's children read, and that goes with this process.
class TenantsFile {
 public:
  TenantsFile() {
    char directory[] = "/tmp/detshare-trial-XXXXXX";
    if (mkdtemp(directory) == nullptr) return;
    directory_ = directory;
    std::ofstream(path()) << kTenants;
  }
  ~TenantsFile() {
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }
  bool ok() const { return !directory_.empty() && std::filesystem::exists(path()); }
  std::string path() const { return directory_ + "/detshare.toml"; }

 private:
  std::string directory_;
};

class Trial {
 public:
  explicit Trial(const Options& options) : options_(options) {}

  int Run() {
    if (const absl::Status status = Measure(); !status.ok())
      return Fail(std::string(status.message()));
    if (options_.json) {
      PrintJson();
    } else {
      PrintTable();
    }
    return SameResults() ? 0 : 1;
  }

 private:
  absl::Status Measure() {
    const std::string own = tools::OwnDirectory();
    std::vector<std::string> places = {own + "/detshare-trial-workload",
                                       own + "/../libexec/detshare/detshare-trial-workload",
                                       own + "/../../tools/trial/detshare-trial-workload"};
    workload_ = tools::FindProgram(places);
    if (workload_.empty())
      return absl::NotFoundError(
          absl::StrCat("there is no program ", places[0], ": install the package detshare"));
    if (options_.backend != "soft") {
      if (absl::Status status = LookForGpu(); !status.ok()) return status;
    }
    if (!soft_) {
      if (absl::Status status = Phases("native", {}, {}); !status.ok()) return status;
    }

    auto tenants = std::make_unique<TenantsFile>();
    if (!tenants->ok())
      return absl::UnavailableError("cannot write to /tmp: make it writable, or free space there");
    const std::string daemon = tools::FindProgram(tools::DaemonPaths(own));
    if (daemon.empty())
      return absl::NotFoundError(
          absl::StrCat("there is no daemon at ", tools::DaemonPaths(own).front(),
                       ": install the package detshare, or set DETSHARE_DAEMON to its path"));
    tools::PrivateDaemon::Options how;
    how.backend = soft_ ? "soft" : "cuda";
    how.flags = {"--config", tenants->path()};
    if (soft_) how.flags.insert(how.flags.end(), {"--soft-sms", "8", "--soft-memory", "64MiB"});
    tools::PrivateDaemon private_daemon;
    if (!private_daemon.Start(daemon, how))
      return absl::UnavailableError("DetShare's daemon does not start; read its messages above");
    tenants.reset();  // the daemon has read it
    const std::string socket = private_daemon.socket();
    if (soft_) {
      absl::Status status = Calibrate({socket, "training"});
      if (!status.ok()) return status;
    }
    return Phases("DetShare", {socket, "inference"}, {socket, "training"});
  }

  // Decides whether there is a GPU, and calibrates the programs on it.
  absl::Status LookForGpu() {
    const absl::Status status = Calibrate({});
    if (status.ok()) return status;
    if (options_.backend == "cuda" || access("/dev/nvidiactl", F_OK) == 0)
      return absl::UnavailableError(absl::StrCat("a CUDA program cannot use this host's GPU (",
                                                 status.message(),
                                                 "): try nvidia-smi; in docker, add --gpus all"));
    std::fprintf(stderr,
                 "No GPU here: the software GPU takes its place, and only through DetShare. The "
                 "figures show that the trial works, and say nothing of a GPU.\n");
    return absl::OkStatus();
  }

  absl::Status Calibrate(const Way& way) {
    Program program;
    if (absl::Status status = program.Start({workload_, "calibrate"}, way); !status.ok())
      return status;
    const absl::StatusOr<json> result = program.Result(kPatience);
    if (!result.ok()) return result.status();
    device_ = result->value("device", "?");
    inference_ = std::to_string(result->value("inference", 1));
    training_ = std::to_string(result->value("training", 1));
    soft_ = !way.socket.empty();
    return absl::OkStatus();
  }

  // Runs each program alone, then both at once.
  absl::Status Phases(const std::string& how, const Way& inference, const Way& training) {
    for (const char* which : {"inference", "training", "both"}) {
      const bool both = which == std::string("both");
      const bool with_inference = both || which == std::string("inference");
      const bool with_training = both || which == std::string("training");
      std::fprintf(stderr, "%d of %d  %s: %s, %g s ...\n", ++run_, soft_ ? 3 : 6, how.c_str(),
                   both ? "both at once" : absl::StrCat("the ", which, " alone").c_str(),
                   options_.seconds);
      Program first, second;
      const std::string seconds = absl::StrFormat("%g", options_.seconds);
      if (with_inference) {
        absl::Status status = first.Start({workload_, "inference", seconds, inference_}, inference);
        if (status.ok()) status = first.WaitUntilReady(kPatience);
        if (!status.ok()) return status;
      }
      if (with_training) {
        absl::Status status = second.Start({workload_, "training", seconds, training_}, training);
        if (status.ok()) status = second.WaitUntilReady(kPatience);
        if (!status.ok()) return status;
      }
      if (with_inference) first.Go();
      if (with_training) second.Go();
      const absl::Duration limit = absl::Seconds(options_.seconds) + kPatience;
      Row row;
      row.name = absl::StrCat(how, both ? ", both at once" : ", each alone");
      if (with_inference) {
        absl::StatusOr<json> result = first.Result(limit);
        if (!result.ok()) return result.status();
        row.inference = *std::move(result);
      }
      if (with_training) {
        absl::StatusOr<json> result = second.Result(limit);
        if (!result.ok()) return result.status();
        row.training = *std::move(result);
      }
      // The programs alone share a row.
      if (which == std::string("training")) {
        rows_.back().training = std::move(row.training);
      } else {
        rows_.push_back(std::move(row));
      }
    }
    return absl::OkStatus();
  }

  // Whether each program has computed the same bits in all rows.
  bool SameResults() const {
    bool same = true;
    for (const Row& row : rows_) {
      same &= row.inference->value("checksum", "?") == rows_[0].inference->value("checksum", "");
      same &= row.training->value("checksum", "?") == rows_[0].training->value("checksum", "");
    }
    return same;
  }

  void PrintTable() const {
    // Relative to the programs alone: natively, or through DetShare where there is no GPU.
    const double p99 = rows_[0].inference->value("p99_ms", 0.0);
    const double speed = rows_[0].training->value("steps_per_second", 0.0);
    text::Table table({"", "REQUESTS", "P50", "P99", "P99 TO ALONE", "STEPS/S", "STEPS TO ALONE"});
    for (const Row& row : rows_) {
      const double row_p99 = row.inference->value("p99_ms", 0.0);
      const double row_speed = row.training->value("steps_per_second", 0.0);
      table.Add({row.name, text::Count(row.inference->value("requests", uint64_t{0})),
                 absl::StrFormat("%.2f ms", row.inference->value("p50_ms", 0.0)),
                 absl::StrFormat("%.2f ms", row_p99),
                 p99 > 0 ? absl::StrFormat("%.2f", row_p99 / p99) : "",
                 absl::StrFormat("%.1f", row_speed),
                 speed > 0 ? absl::StrFormat("%.2f", row_speed / speed) : ""});
    }
    std::printf(
        "\n%s. The inference sends requests, of which P50 and P99 are latencies; the training "
        "makes "
        "steps.\n",
        device_.c_str());
    if (!soft_) {
      std::printf(
          "Before: native, so the programs share the GPU by %s. After: DetShare, policy priority, "
          "the inference of class latency and the training of class batch.\n",
          MpsRuns() ? "MPS, which runs on this host" : "the driver's time-slicing");
    }
    std::printf("TO ALONE is relative to the program alone in the first row.\n");
    std::printf("\n%s\n", table.ToString(2).c_str());
    if (soft_) {
      std::printf("These figures are of a software GPU: they say nothing of a GPU.\n");
    }
    std::printf("%s\n", SameResults() ? "Each program computed the same bits in every row."
                                      : "A program did NOT compute the same bits in every row.");
  }

  void PrintJson() const {
    ordered_json out;
    out["device"] = device_;
    out["software_gpu"] = soft_;
    out["seconds"] = options_.seconds;
    out["same_results"] = SameResults();
    out["rows"] = ordered_json::array();
    for (const Row& row : rows_) {
      out["rows"].push_back(
          {{"name", row.name}, {"inference", *row.inference}, {"training", *row.training}});
    }
    std::puts(out.dump(2).c_str());
  }

  const Options options_;
  std::string workload_, device_;
  std::string inference_, training_;  // iterations
  bool soft_ = true;
  int run_ = 0;  // the number of the run
  std::vector<Row> rows_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Runs an inference beside a training on the GPU, by the driver's time-slicing and through "
      "DetShare, and compares.",
      kTrial);
  app.add_option("--seconds", options.seconds, "How long each of the runs takes [10]")
      ->type_name("S")
      ->check(NumberIn(0.05, 3600));
  app.add_option("--backend", options.backend,
                 "The GPU: cuda for the real one, soft for the software GPU, auto for the real one "
                 "if there is one [auto]")
      ->check(CLI::IsMember({"auto", "cuda", "soft"}));
  app.add_flag("--json", options.json, "Print JSON");
  if (const std::optional<int> code =
          ParseCommandLine(app, std::vector<std::string>(argv + 1, argv + argc), 2)) {
    return *code;
  }
  // A program that has ended does not end the trial, which says why.
  signal(SIGPIPE, SIG_IGN);
  return Trial(options).Run();
}

}  // namespace
}  // namespace detshare::trial

int main(int argc, char** argv) {
  return detshare::EndOutput(detshare::trial::kTrial, detshare::trial::Main(argc, argv));
}
