#include "tools/detsharectl/verify.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
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
#include "tools/detshare/launch.h"
#include "tools/detshare/private_daemon.h"
#include "tools/detsharectl/daemon.h"
#include "tools/detsharectl/digest_log.h"
#include "tools/detsharectl/json_text.h"
#include "tools/detsharectl/verdict.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

using nlohmann::ordered_json;
using SteadyClock = std::chrono::steady_clock;

constexpr const char* kNoises[] = {"arithmetic", "bandwidth", "allocation", "modules"};
constexpr int kNoiseDiffers = 3;  // exit code of a neighbour that saw another result
constexpr std::chrono::seconds kNoiseTimeout(60);
// The tenant of the neighbours of a private daemon while the program's tenant is exclusive. Sessions
// of one exclusive tenant run beside each other.
constexpr const char* kNeighboursTenant = "verify-neighbours";

// A signal that asks this process to end. The settings of a running daemon must not outlive it.
volatile sig_atomic_t g_signal = 0;

void CatchSignals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { g_signal = signal; };  // interrupts waitpid()
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

// The places of a tool: the environment variable's if it is set, otherwise those of the bundle, the
// Debian package and `folder` of the build tree.
std::vector<std::string> PlacesOf(const std::string& name, const char* folder,
                                  const char* variable) {
  if (const char* set = std::getenv(variable); set != nullptr && *set != '\0') return {set};
  const std::string own = tools::OwnDirectory();
  return {own + "/" + name, own + "/../libexec/detshare/" + name,
          own + "/../../" + folder + "/" + name};
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

  // Starts neighbours and waits until all of them have work. False after a message. Without a
  // tenant, the neighbours are of the tenant that the daemon gives to the program, too.
  bool Start(int count, const std::string& socket, const std::string& tenant) {
    for (int i = 0; i < count; ++i) {
      Neighbour one;
      one.kind = kNoises[i % std::size(kNoises)];
      one.output = folder_.At("noise" + std::to_string(i));
      std::vector<std::string> command = {launcher_, "run", "--socket", socket};
      if (!tenant.empty()) command.insert(command.end(), {"--tenant", tenant});
      command.insert(command.end(), {"--", noise_, one.kind});
      one.pid = Spawn(command, one.output);
      if (one.pid < 0) return false;
      running_.push_back(one);
    }
    const auto end = SteadyClock::now() + kNoiseTimeout;
    for (const Neighbour& one : running_) {
      while (Contents(one.output).find("ready") == std::string::npos) {
        if (g_signal != 0) return false;
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

class Verification {
 public:
  explicit Verification(const VerifyOptions& options)
      : options_(options), private_(!options.standalone.empty()) {}
  ~Verification() { EndExclusive(); }

  int Run() {
    const int code = Decide();
    if (options_.json) {
      std::fputs(JsonText(Json(code)).c_str(), stdout);
    } else if (!verdict_.empty()) {
      std::puts(verdict_.c_str());
    }
    // Nobody may take a result that was not written for one of equal bits.
    return code == kVerifyEqual && std::fflush(stdout) != 0 ? kVerifyFailed : code;
  }

 private:
  int Decide() {
    if (!folder_.ok())
      return Fail("cannot make a directory in /tmp: make /tmp writable, or free space there");
    if (!Find(PlacesOf("detshare", "tools/detshare", "DETSHARE_LAUNCHER"), "DETSHARE_LAUNCHER",
              &launcher_) ||
        (options_.neighbours > 0 &&
         !Find(PlacesOf("detshare-noise", "tools/verify", "DETSHARE_NOISE"), "DETSHARE_NOISE",
               &noise_)))
      return kVerifyFailed;
    if (!RunWithoutNeighbours()) return kVerifyFailed;
    if (ReadsOf(runs_[0].log) == 0)
      return Fail("the program reads nothing back from a GPU: there is nothing to compare");
    if (Judge(runs_).kind == Kind::kEqual) {
      if (const int code = RunBeside(Sharing::kSpace); code != kVerifyEqual) return code;
      // Only the runs in space can differ here.
      if (Judge(runs_).kind != Kind::kEqual) {
        if (const int code = RunBeside(Sharing::kTurns); code != kVerifyEqual) return code;
      }
    }
    const Verdict verdict = Judge(runs_);
    verdict_ = TextOf(verdict);
    return static_cast<int>(verdict.kind);
  }

  // Finds a program. False after a message.
  bool Find(const std::vector<std::string>& places, const char* variable, std::string* path) {
    *path = tools::FindProgram(places);
    if (!path->empty()) return true;
    Fail("there is no program " + places.front() + ": install it there, or set " + variable +
         " to its path");
    return false;
  }

  bool RunWithoutNeighbours() {
    tools::PrivateDaemon daemon;
    if (!StartDaemon(daemon, 0)) return false;
    if (!private_) {
      // A tenant of its own, because sessions of one tenant run beside each other.
      tenant_.set_name("verify-" + std::to_string(getpid()));
      tenant_.set_exclusive(true);
      if (!BeginExclusive()) return false;
    }
    for (int i = 0; i < 2; ++i) {
      if (!RunOnce(Sharing::kNone)) return false;
    }
    return EndExclusive();
  }

  // Runs the program beside neighbours until a run differs. Returns kVerifyEqual if the neighbours
  // see their own results, whatever the program reads; otherwise the result of `verify`.
  int RunBeside(Sharing sharing) {
    const bool turns = sharing == Sharing::kTurns;
    tools::PrivateDaemon daemon;
    // In turns, streams stay on their partition, because another one changes the order of blocks.
    if (!StartDaemon(daemon, turns ? 0 : options_.migrate_every)) return kVerifyFailed;
    // The setting comes before the neighbours: work that is in the hardware before it runs to its
    // end beside the program.
    if (turns && !tenant_.name().empty() && !BeginExclusive()) return kVerifyFailed;
    Neighbours neighbours(launcher_, noise_, folder_);
    if (!neighbours.Start(options_.neighbours, socket_, turns && private_ ? kNeighboursTenant : ""))
      return g_signal != 0 ? Interrupted() : kVerifyFailed;
    if (!turns && private_ && options_.neighbours > 0 && !LearnTenant()) return kVerifyFailed;
    for (int i = 0; i < options_.runs; ++i) {
      if (!RunOnce(sharing)) return kVerifyFailed;
      if (DepartureOf(runs_[0], runs_.back()).has_value()) break;
      if (!neighbours.Alive()) {
        bool differs = false;
        verdict_ = neighbours.complaint(&differs);
        return differs ? kVerifyDifferent : Fail(verdict_);
      }
    }
    return EndExclusive() ? kVerifyEqual : kVerifyFailed;
  }

  // The program gets the tenant that the neighbours have.
  bool LearnTenant() {
    proto::Status status;
    const int code = CallAdmin(socket_, [&](auto& admin, grpc::ClientContext* context) {
      return admin.GetStatus(context, proto::GetStatusRequest(), &status);
    });
    if (code != 0 || status.sessions_size() == 0) {
      Fail("the private daemon does not say which tenant the program has");
      return false;
    }
    tenant_.set_name(status.sessions(0).tenant());
    tenant_.set_exclusive(true);
    return true;
  }

  bool BeginExclusive() {
    proto::TenantSetting in_force;
    const int code = CallAdmin(socket_, [&](auto& admin, grpc::ClientContext* context) {
      return admin.SetTenant(context, tenant_, &in_force);
    });
    exclusive_ = code == 0;
    if (exclusive_) return true;
    if (code == kExitNoDaemon) {  // CallAdmin() has said so
      failure_ = "no detshared replies at " + socket_;
      return false;
    }
    Fail(private_ ? "the private daemon does not make the program's tenant exclusive"
                  : "other programs may run beside the program, because this user cannot make a "
                    "tenant exclusive: run verify as root or as a member of the daemon's "
                    "admin_group, or with --standalone");
    return false;
  }

  // Takes the setting back. False after a message if it was not in force any more.
  bool EndExclusive() {
    if (!exclusive_) return true;
    exclusive_ = false;
    if (private_) return true;  // the setting ends with the daemon
    proto::UnsetTenantRequest request;
    request.set_name(tenant_.name());
    proto::Tenants in_force;
    const int code = CallAdmin(socket_, [&](auto& admin, grpc::ClientContext* context) {
      return admin.UnsetTenant(context, request, &in_force);
    });
    if (code == 0) return true;
    Fail("the tenant " + tenant_.name() +
         " may not have been exclusive in all runs, because somebody changed the settings of "
         "tenants: run verify again");
    return false;
  }

  int Interrupted() { return Fail("ended by signal " + std::to_string(g_signal)); }

  // Where the runs without neighbours were.
  const char* WhereFirst() const { return private_ ? "alone" : "in exclusive turns"; }

  std::string TextOf(const Verdict& verdict) const {
    switch (verdict.kind) {
      case Kind::kEqual:
        return "equal: " + text::Counted(ReadsOf(runs_[0].log), "read") + ", " +
               text::Bytes(BytesOf(runs_[0].log)) + ", the same bits " + WhereFirst() + " and in " +
               text::Counted(options_.runs, "run") + " beside " +
               text::Counted(options_.neighbours, "neighbour");
      case Kind::kNotReproducible:
        return std::string("not reproducible: two runs ") + WhereFirst() +
               " differ already: " + Describe(*verdict.none);
      case Kind::kEqualInTurns:
        return "equal in exclusive turns, not in space: the first difference in space is " +
               Describe(*verdict.space) +
               "\nThe order of blocks in space changes the result. Make the program's tenant "
               "exclusive: detsharectl tenant set NAME --exclusive on, or exclusive = true in its "
               "[[tenant]].";
      case Kind::kDifferent:
        break;
    }
    std::string text = "different: " + Describe(*verdict.space);
    if (verdict.turns.has_value()) {
      text += "\nIn exclusive turns: " + Describe(*verdict.turns);
    } else if (runs_.back().sharing == Sharing::kTurns) {
      text +=
          "\nThe runs in exclusive turns are equal, but another order of blocks does not explain "
          "the exit code.";
    }
    return text;
  }

  int Fail(const std::string& why) {
    std::fprintf(stderr, "detsharectl: %s\n", why.c_str());
    failure_ = why;
    verdict_ = "";
    return kVerifyFailed;
  }

  bool StartDaemon(tools::PrivateDaemon& daemon, int migrate_every) {
    socket_ = options_.socket;
    if (!private_) return true;
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
    std::string path;
    if (!Find(tools::DaemonPaths(tools::OwnDirectory()), "DETSHARE_DAEMON", &path)) return false;
    if (!daemon.Start(path, how)) {
      Fail("there is no private daemon to run the program with; its messages are above");
      return false;
    }
    socket_ = daemon.socket();
    return true;
  }

  bool RunOnce(Sharing sharing) {
    ProgramRun ran;
    ran.sharing = sharing;
    const std::string log = folder_.At("log"), output = folder_.At("output");
    std::vector<std::string> command = {launcher_, "run", "--socket", socket_, "--digest-log", log};
    // In a private daemon, the exclusive tenant is the one that the program has by itself.
    if (exclusive_ && !private_) command.insert(command.end(), {"--tenant", tenant_.name()});
    command.push_back("--");
    command.insert(command.end(), options_.command.begin(), options_.command.end());
    const auto begin = SteadyClock::now();
    const pid_t pid = Spawn(command, output);
    if (pid < 0) {
      Fail("cannot start the program");
      return false;
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) kill(pid, SIGTERM);
    if (g_signal != 0) {
      Interrupted();
      return false;
    }
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    ran.code = ExitCode(status);
    absl::StatusOr<DigestLog> parsed = ParseDigestLog(Contents(log));
    if (!parsed.ok()) {
      Fail("the digest log of a run is malformed: " + std::string(parsed.status().message()));
      return false;
    }
    ran.log = *std::move(parsed);
    Progress(ran, seconds);
    if (ran.code != 0 && runs_.empty()) {
      Fail("the program ended with exit code " + std::to_string(ran.code) + ":\n" +
           Tail(Contents(output)));
      return false;
    }
    if (ran.code != 0) std::fprintf(stderr, "%s", Tail(Contents(output)).c_str());
    runs_.push_back(std::move(ran));
    seconds_.push_back(seconds);
    return true;
  }

  static std::string Tail(const std::string& text) {
    constexpr size_t kMax = 2000;
    return text.size() <= kMax ? text : "..." + text.substr(text.size() - kMax);
  }

  void Progress(const ProgramRun& ran, double seconds) const {
    const char* const where = ran.sharing == Sharing::kNone    ? WhereFirst()
                              : ran.sharing == Sharing::kSpace ? "beside neighbours"
                                                               : "in exclusive turns";
    const char* const result = runs_.empty()                            ? ""
                               : DepartureOf(runs_[0], ran).has_value() ? ", different"
                                                                        : ", equal";
    std::fprintf(stderr, "%-18s %7.2f s, %s, %s, digest %.16s%s\n", where, seconds,
                 text::Counted(ReadsOf(ran.log), "read").c_str(),
                 text::Bytes(BytesOf(ran.log)).c_str(), DigestOf(ran.log).c_str(), result);
  }

  ordered_json Json(int code) const {
    constexpr const char* kVerdicts[] = {"equal", "different", "failed", "not reproducible",
                                         "equal in exclusive turns"};
    ordered_json runs = ordered_json::array();
    for (size_t i = 0; i < runs_.size(); ++i) {
      const ProgramRun& ran = runs_[i];
      const std::optional<Difference> first = FirstDifference(runs_[0].log, ran.log);
      ordered_json one = {{"alone", ran.sharing == Sharing::kNone && private_},
                          {"exclusive_turns", ran.sharing == Sharing::kTurns ||
                                                  (ran.sharing == Sharing::kNone && !private_)},
                          {"neighbours", ran.sharing == Sharing::kNone ? 0 : options_.neighbours},
                          {"seconds", seconds_[i]},
                          {"exit_code", ran.code},
                          {"reads", ReadsOf(ran.log)},
                          {"bytes", BytesOf(ran.log)},
                          {"digest", DigestOf(ran.log)},
                          {"equal", !first.has_value()}};
      if (first.has_value()) {
        const Difference& difference = *first;
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
            {"migrate_every", private_ ? options_.migrate_every : 0},
            {"runs", std::move(runs)}};
  }

  const VerifyOptions& options_;
  const bool private_;  // the daemon is private: it has no other programs
  const Folder folder_;
  std::string launcher_, noise_, socket_;
  // The exclusive tenant of the program. In a private daemon without neighbours it has no name.
  proto::TenantSetting tenant_;
  bool exclusive_ = false;  // the tenant is exclusive
  std::vector<ProgramRun> runs_;
  std::vector<double> seconds_;  // how long each run took
  std::string verdict_, failure_;
};

}  // namespace

int Verify(const VerifyOptions& options) {
  CatchSignals();
  return Verification(options).Run();
}

}  // namespace detshare::ctl
