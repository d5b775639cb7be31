#include "tools/detsharectl/verify.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "tools/detshare/execute.h"
#include "tools/detshare/private_daemon.h"
#include "tools/detsharectl/digest_log.h"
#include "tools/detsharectl/json_text.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

using nlohmann::ordered_json;
using SteadyClock = std::chrono::steady_clock;

constexpr const char* kNoises[] = {"arithmetic", "bandwidth", "allocation", "modules"};
constexpr int kNoiseDiffers = 3;  // exit code of a neighbour that saw another result
constexpr std::chrono::seconds kNoiseTimeout(60);

std::string OwnDirectory() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : self.parent_path().string();
}

// Looks for a tool beside this program, as in a bundle, then in `folder` of the build tree. The
// environment variable goes before both.
std::string FindTool(const std::string& name, const char* folder, const char* variable) {
  if (const char* set = std::getenv(variable); set != nullptr && *set != '\0') return set;
  const std::string own = OwnDirectory();
  return tools::FindProgram({own + "/" + name, own + "/../../" + folder + "/" + name});
}

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/detshare-verify-XXXXXX";
    if (mkdtemp(path) != nullptr) path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  bool ok() const { return !path_.empty(); }
  std::string At(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Starts a child, which ends with this process. The child's stdout and stderr go to the file. -1
// after a message.
pid_t Spawn(const std::vector<std::string>& command, const std::string& output) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) std::perror("detsharectl: fork");
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(tools::kExitLauncher);
  const int nothing = open("/dev/null", O_RDONLY);
  const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (fd >= 0) {
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
  }
  _exit(tools::Execute(command));
}

int ExitCode(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Noisy neighbours, which run as long as the object lives.
class Neighbours {
 public:
  Neighbours(std::string launcher, std::string noise, const Folder& folder)
      : launcher_(std::move(launcher)), noise_(std::move(noise)), folder_(folder) {}
  ~Neighbours() { Stop(); }

  // Starts neighbours and waits until all of them have work. False after a message.
  bool Start(int count, const std::string& socket) {
    for (int i = 0; i < count; ++i) {
      Neighbour one;
      one.kind = kNoises[i % std::size(kNoises)];
      one.output = folder_.At("noise" + std::to_string(i));
      one.pid = Spawn({launcher_, "run", "--socket", socket, "--", noise_, one.kind}, one.output);
      if (one.pid < 0) return false;
      running_.push_back(one);
    }
    const auto end = SteadyClock::now() + kNoiseTimeout;
    for (const Neighbour& one : running_) {
      while (Contents(one.output).find("ready") == std::string::npos) {
        if (!Alive() || SteadyClock::now() > end) {
          std::fprintf(stderr, "detsharectl: the neighbour \"%s\" does not start:\n%s", one.kind,
                       Contents(one.output).c_str());
          return false;
        }
        usleep(5000);
      }
    }
    return true;
  }
  // Whether no neighbour has ended by itself.
  bool Alive() {
    for (Neighbour& one : running_) {
      int status = 0;
      if (one.code < 0 && waitpid(one.pid, &status, WNOHANG) == one.pid)
        one.code = ExitCode(status);
    }
    for (const Neighbour& one : running_) {
      if (one.code >= 0) return false;
    }
    return true;
  }
  // The output of the first neighbour that has ended by itself, and whether it saw another result
  // than alone.
  std::string complaint(bool* differs) const {
    for (const Neighbour& one : running_) {
      if (one.code < 0) continue;
      *differs = one.code == kNoiseDiffers;
      return std::string("the neighbour \"") + one.kind + "\" ended with exit code " +
             std::to_string(one.code) + ": " + Contents(one.output);
    }
    return "";
  }
  void Stop() {
    for (const Neighbour& one : running_) {
      if (one.code < 0) kill(one.pid, SIGKILL);
    }
    for (const Neighbour& one : running_) {
      if (one.code < 0) waitpid(one.pid, nullptr, 0);
    }
    running_.clear();
  }

 private:
  struct Neighbour {
    const char* kind = "";
    std::string output;
    pid_t pid = -1;
    int code = -1;  // exit code; below 0: the neighbour runs
  };
  const std::string launcher_, noise_;
  const Folder& folder_;
  std::vector<Neighbour> running_;
};

struct Ran {
  bool alone = true;
  int code = 0;
  double seconds = 0;
  DigestLog log;
  std::optional<Difference> difference;  // from the first run alone
};

class Verification {
 public:
  explicit Verification(const VerifyOptions& options) : options_(options) {}

  int Run() {
    const int code = Decide();
    if (options_.json) {
      std::fputs(JsonText(Json(code)).c_str(), stdout);
    } else if (!verdict_.empty()) {
      std::puts(verdict_.c_str());
    }
    return code;
  }

 private:
  int Decide() {
    if (!folder_.ok())
      return Fail("cannot make a directory in /tmp: make /tmp writable, or free space there");
    launcher_ = FindTool("detshare", "tools/detshare", "DETSHARE_LAUNCHER");
    noise_ = FindTool("detshare-noise", "tools/verify", "DETSHARE_NOISE");
    if (launcher_.empty())
      return Fail(
          "the launcher `detshare` is not beside this program; set DETSHARE_LAUNCHER to its path");
    if (noise_.empty() && options_.neighbours > 0)
      return Fail("`detshare-noise` is not beside this program; set DETSHARE_NOISE to its path");
    {
      tools::PrivateDaemon daemon;
      if (!StartDaemon(daemon, 0)) return kVerifyFailed;
      for (int i = 0; i < 2; ++i) {
        if (!RunOnce(true)) return kVerifyFailed;
      }
    }
    if (ReadsOf(runs_[0].log) == 0)
      return Fail("the program reads nothing back from a GPU: there is nothing to compare");
    if (runs_[1].difference.has_value() || runs_[1].code != runs_[0].code) {
      verdict_ = "not reproducible: two runs alone differ already: " + WhatDiffers(runs_[1]);
      return kVerifyNotReproducible;
    }
    tools::PrivateDaemon daemon;
    if (!StartDaemon(daemon, options_.migrate_every)) return kVerifyFailed;
    Neighbours neighbours(launcher_, noise_, folder_);
    if (!neighbours.Start(options_.neighbours, socket_)) return kVerifyFailed;
    for (int i = 0; i < options_.runs; ++i) {
      if (!RunOnce(false)) return kVerifyFailed;
      const Ran& ran = runs_.back();
      if (ran.difference.has_value() || ran.code != runs_[0].code) {
        verdict_ = "different: " + WhatDiffers(ran);
        return kVerifyDifferent;
      }
      if (!neighbours.Alive()) {
        bool differs = false;
        verdict_ = neighbours.complaint(&differs);
        return differs ? kVerifyDifferent : Fail(verdict_);
      }
    }
    verdict_ = "equal: " + text::Counted(ReadsOf(runs_[0].log), "read") + ", " +
               text::Bytes(BytesOf(runs_[0].log)) + ", the same bits alone and in " +
               text::Counted(options_.runs, "run") + " beside " +
               text::Counted(options_.neighbours, "neighbour");
    return kVerifyEqual;
  }

  int Fail(const std::string& why) {
    std::fprintf(stderr, "detsharectl: %s\n", why.c_str());
    verdict_ = "";
    failure_ = why;
    return kVerifyFailed;
  }

  bool StartDaemon(tools::PrivateDaemon& daemon, int migrate_every) {
    socket_ = options_.socket;
    if (options_.standalone.empty()) return true;
    tools::PrivateDaemon::Options how;
    how.backend = options_.standalone;
    how.log_level = "error";
    how.flags = options_.daemon_flags;
    if (!options_.policy.empty()) {
      how.flags.push_back("--policy");
      how.flags.push_back(options_.policy);
    }
    if (migrate_every > 0) {
      how.flags.push_back("--migrate-every");
      how.flags.push_back(std::to_string(migrate_every));
    }
    const std::string path = FindTool("detshared", "server", "DETSHARE_DAEMON");
    if (path.empty()) {
      Fail("the daemon `detshared` is not beside this program; set DETSHARE_DAEMON to its path");
      return false;
    }
    if (!daemon.Start(path, how)) {
      Fail("there is no private daemon to run the program with; its messages are above");
      return false;
    }
    socket_ = daemon.socket();
    return true;
  }

  bool RunOnce(bool alone) {
    Ran ran;
    ran.alone = alone;
    const std::string log = folder_.At("log"), output = folder_.At("output");
    std::vector<std::string> command = {launcher_,      "run", "--socket", socket_,
                                        "--digest-log", log,   "--"};
    command.insert(command.end(), options_.command.begin(), options_.command.end());
    const auto begin = SteadyClock::now();
    const pid_t pid = Spawn(command, output);
    if (pid < 0) {
      Fail("cannot start the program");
      return false;
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ran.seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    ran.code = ExitCode(status);
    absl::StatusOr<DigestLog> parsed = ParseDigestLog(Contents(log));
    if (!parsed.ok()) {
      Fail("the digest log of a run is malformed: " + std::string(parsed.status().message()));
      return false;
    }
    ran.log = *std::move(parsed);
    if (!runs_.empty()) ran.difference = FirstDifference(runs_[0].log, ran.log);
    Progress(ran);
    if (ran.code != 0 && runs_.empty()) {
      Fail("the program ended with exit code " + std::to_string(ran.code) + ":\n" +
           Tail(Contents(output)));
      return false;
    }
    if (ran.code != 0) std::fprintf(stderr, "%s", Tail(Contents(output)).c_str());
    runs_.push_back(std::move(ran));
    return true;
  }

  static std::string Tail(const std::string& text) {
    constexpr size_t kMax = 2000;
    return text.size() <= kMax ? text : "..." + text.substr(text.size() - kMax);
  }

  void Progress(const Ran& ran) const {
    const char* result = runs_.empty()                ? ""
                         : ran.difference.has_value() ? ", different"
                                                      : ", equal";
    std::fprintf(stderr, "%-18s %7.2f s, %s, %s, digest %.16s%s\n",
                 ran.alone ? "alone" : "beside neighbours", ran.seconds,
                 text::Counted(ReadsOf(ran.log), "read").c_str(),
                 text::Bytes(BytesOf(ran.log)).c_str(), DigestOf(ran.log).c_str(), result);
  }

  std::string WhatDiffers(const Ran& ran) const {
    if (ran.difference.has_value()) return Describe(*ran.difference);
    return "the program ended with exit code " + std::to_string(ran.code) + " instead of " +
           std::to_string(runs_[0].code);
  }

  ordered_json Json(int code) const {
    constexpr const char* kVerdicts[] = {"equal", "different", "failed", "not reproducible"};
    ordered_json runs = ordered_json::array();
    for (const Ran& ran : runs_) {
      ordered_json one = {{"alone", ran.alone},
                          {"seconds", ran.seconds},
                          {"exit_code", ran.code},
                          {"reads", ReadsOf(ran.log)},
                          {"bytes", BytesOf(ran.log)},
                          {"digest", DigestOf(ran.log)},
                          {"equal", !ran.difference.has_value()}};
      if (ran.difference.has_value()) {
        const Difference& difference = *ran.difference;
        one["difference"] = {{"program", difference.program},
                             {"sequence", difference.read.place},
                             {"number", difference.read.number},
                             {"bytes", difference.read.bytes},
                             {"kernel", Demangle(difference.read.kernel)},
                             {"what", Describe(difference)}};
      }
      runs.push_back(std::move(one));
    }
    return {{"verdict", kVerdicts[code]},
            {"message", verdict_.empty() ? failure_ : verdict_},
            {"neighbours", options_.neighbours},
            {"migrate_every", options_.standalone.empty() ? 0 : options_.migrate_every},
            {"runs", std::move(runs)}};
  }

  const VerifyOptions& options_;
  const Folder folder_;
  std::string launcher_, noise_, socket_;
  std::vector<Ran> runs_;
  std::string verdict_, failure_;
};

}  // namespace

int Verify(const VerifyOptions& options) { return Verification(options).Run(); }

}  // namespace detshare::ctl
