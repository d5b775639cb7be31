#include "tools/detsharectl/doctor.h"

#include <grp.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <system_error>

#include "policy/config/config_file.h"
#include "proto/ring_abi.h"
#include "proto/version.h"
#include "tools/detsharectl/config.h"
#include "tools/detsharectl/json_text.h"
#include "tools/detsharectl/status.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

namespace fs = std::filesystem;
using Level = Finding::Level;

// A session begins with 20 to 68 MiB of files. With less than this left, the next large program
// fails.
constexpr uint64_t kLittleSpace = uint64_t{256} << 20;
// The descriptors of the shim and gRPC, with room for the program itself.
constexpr rlim_t kFewFiles = 64;
constexpr rlim_t kLittleAddressSpace = rlim_t{1} << 30;
// Enough for several descriptors for each of a few hundred programs.
constexpr uint64_t kFewFilesOfDaemon = 4096;
constexpr char kNeedsSocket[] = "not known without a connection to the daemon's socket";
constexpr char kNeedsReply[] = "not known without a reply of the daemon";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string DirectoryOf(const std::string& path) {
  const std::string directory = fs::path(path).parent_path();
  return directory.empty() ? "." : directory;
}

std::string ErrorText(int error) { return std::generic_category().message(error); }

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// Whether a libcuda.so.1 is DetShare's. Only DetShare's contains the name of this variable.
bool IsShim(const std::string& path) {
  return ReadFile(path).find("DETSHARE_SOCKET") != std::string::npos;
}

std::vector<int> Processes(const std::string& root) {
  std::vector<int> pids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/proc", error)) {
    const std::string name = entry.path().filename();
    if (!name.empty() && name.size() < 10 &&
        std::all_of(name.begin(), name.end(), [](unsigned char c) { return isdigit(c); }))
      pids.push_back(std::stoi(name));
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

class Examination {
 public:
  explicit Examination(const Host& host) : host_(host) {}

  std::vector<Finding> Make() {
    Socket();
    Daemon();
    Driver();
    Devices();
    Engines();
    Preemption();
    RuntimeDirectory();
    Shim();
    Configuration();
    Limits();
    ControlGroup();
    Mps();
    Mig();
    OtherProcesses();
    return std::move(findings_);
  }

 private:
  void Add(const std::string& check, Level level, std::string text, std::string advice = "") {
    findings_.push_back({check, level, std::move(text), std::move(advice)});
  }
  std::string Variable(const std::string& name) const {
    const auto found = host_.environment.find(name);
    return found != host_.environment.end() ? found->second : "";
  }
  // With its number where there are several, which may have one name.
  std::string NameOf(int device) const {
    const std::string& name = host_.status->devices(device).name();
    return host_.status->devices_size() == 1 ? name
                                             : "device " + std::to_string(device) + ": " + name;
  }
  // The daemon's process id; 0: not known.
  int daemon_pid() const { return host_.status.has_value() ? host_.status->pid() : 0; }

  // Sets connects_. Later checks of the daemon do not repeat this check's error.
  void Socket() {
    const std::string& path = host_.socket;
    if (path.size() > kMaxSocketPath)
      return Add("socket", Level::kError, path + " is too long for a socket's path",
                 "use a path of at most " + std::to_string(kMaxSocketPath) + " characters");
    struct stat status;
    if (stat(path.c_str(), &status) != 0) {
      const std::string advice =
          errno == EACCES
              ? "make the directories above it accessible to this user: chmod o+x"
              : "start the daemon (systemctl enable --now detshared.socket), or name its "
                "socket with --socket or DETSHARE_SOCKET";
      return Add("socket", Level::kError, path + ": " + ErrorText(errno), advice);
    }
    if (!S_ISSOCK(status.st_mode))
      return Add("socket", Level::kError, path + " is not a socket",
                 "name the daemon's socket with --socket");
    if (access(path.c_str(), W_OK) != 0) {
      const group* const owner = getgrgid(status.st_gid);
      const std::string group = owner != nullptr ? owner->gr_name : std::to_string(status.st_gid);
      const bool for_group = (status.st_mode & S_IWGRP) != 0;
      return Add("socket", Level::kError, "this user may not connect to " + path,
                 for_group && status.st_gid != 0
                     ? "join its group and log in again: sudo adduser USER " + group
                 : for_group
                     ? "give it a group of users: sudo chgrp GROUP " + path +
                           ", or run the daemon as a service (systemctl enable --now "
                           "detshared.socket)"
                     : "set its mode to 0660 or 0666, with socket_mode or with SocketMode= of "
                       "detshared.socket");
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool connected =
        connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    const int error = errno;
    close(fd);
    if (!connected) {
      return Add("socket", Level::kError, "no process listens on " + path + ": " + ErrorText(error),
                 error == EAGAIN
                     ? "the daemon accepts no connections: run systemctl restart detshared"
                     : "start the daemon: systemctl start detshared");
    }
    connects_ = true;
    Add("socket", Level::kOk, path + " accepts connections");
  }

  void Daemon() {
    if (!connects_) return Add("daemon", Level::kUnknown, kNeedsSocket);
    if (!host_.status.has_value()) {
      return Add("daemon", host_.refuses ? Level::kUnknown : Level::kError,
                 host_.no_status.empty() ? "detshared does not reply" : host_.no_status,
                 host_.no_status_advice);
    }
    const proto::Status& status = *host_.status;
    const std::string text = "detshared " + status.version() + " (ABI " +
                             std::to_string(status.abi_version()) + "), pid " +
                             std::to_string(status.pid()) + ", policy " + status.policy();
    if (status.abi_version() != kAbiVersion) {
      return Add(
          "daemon", Level::kError,
          text + "; this installation is " + kVersion + " (ABI " + std::to_string(kAbiVersion) +
              ")",
          "the daemon refuses programs with the shim of this version: install the same version, "
          "then run systemctl restart detshared");
    }
    if (status.version() != kVersion) {
      return Add("daemon", Level::kWarning, text + "; this installation is " + kVersion,
                 "run systemctl restart detshared when its programs can end");
    }
    Add("daemon", Level::kOk, text);
  }

  void Driver() {
    const std::string version = FirstLine(ReadFile(host_.root + "/proc/driver/nvidia/version"));
    const std::string backend = host_.status.has_value() ? host_.status->backend() : "";
    if (version.empty()) {
      if (backend == "cuda")
        return Add("driver", Level::kOk, "the daemon uses a driver that this process does not see");
      // A container that only runs programs needs no driver, and a host without GPUs none either.
      return Add(
          "driver", host_.refuses ? Level::kUnknown : Level::kWarning,
          "no NVIDIA driver is loaded" +
              std::string(backend == "soft" ? "; the daemon serves software GPUs" : ""),
          "if there is a GPU, install a driver, or load it with modprobe nvidia; without one "
          "the daemon serves software GPUs, and a container that only runs programs needs "
          "none");
    }
    const std::string device = host_.root + "/dev/nvidia0";
    if (!fs::exists(device)) {
      return Add("driver", Level::kError, "the driver is loaded, but there is no /dev/nvidia0",
                 "make the device nodes: run nvidia-modprobe -c 0 -u");
    }
    if (!fs::exists(host_.root + "/dev/nvidia-uvm")) {
      return Add("driver", Level::kError, "the driver is loaded, but there is no /dev/nvidia-uvm",
                 "make the device node: run modprobe nvidia_uvm, then nvidia-modprobe -u");
    }
    if (backend == "soft") {
      return Add(
          "driver", Level::kWarning,
          "a driver is loaded, but the daemon serves software GPUs: " + version,
          "read in its log why (journalctl -u detshared); to forbid software GPUs, set backend "
          "= \"cuda\" in the configuration");
    }
    Add("driver", Level::kOk, version);
  }

  void Devices() {
    if (!host_.status.has_value()) return Add("devices", Level::kUnknown, kNeedsReply);
    if (host_.status->devices().empty())
      Add("devices", Level::kError, "the daemon has no device",
          "read its log: journalctl -u detshared");
    for (int i = 0; i < host_.status->devices_size(); ++i) {
      const proto::DeviceStatus& device = host_.status->devices(i);
      if (device.state() == "ok") {
        Add("devices", Level::kOk, NameOf(i) + ", " + text::Bytes(device.total_memory()));
      } else {
        Add("devices", Level::kError, NameOf(i) + ": " + device.state(),
            "run systemctl restart detshared; if the error stays, look for its cause with dmesg | "
            "grep -i xid");
      }
    }
  }

  // One finding for each engine that is silent, and one if there is none.
  void Engines() {
    if (!host_.status.has_value()) return Add("engines", Level::kUnknown, kNeedsReply);
    bool silent = false;
    for (const proto::EngineStatus& engine : host_.status->engines()) {
      if (engine.problem().empty()) continue;
      silent = true;
      const std::string pid = std::to_string(engine.pid());
      Add("engines", Level::kWarning,
          "the engine of isolation group " + engine.group() + " (pid " + pid +
              ") does not serve: " + engine.problem(),
          "run detsharectl doctor again in a moment; if this stays, read its log (journalctl -u "
          "detshared), then end it with kill -KILL " +
              pid + ": its programs end, and those of other groups go on");
    }
    if (!silent) Add("engines", Level::kOk, "no engine is silent");
  }

  // One finding for each device.
  void Preemption() {
    if (!host_.status.has_value()) return Add("preemption", Level::kUnknown, kNeedsReply);
    for (int i = 0; i < host_.status->devices_size(); ++i) {
      const proto::DeviceStatus& device = host_.status->devices(i);
      const proto::PreemptionStatus& preemption = device.preemption();
      const std::string mode = PreemptionMode(device);
      if (mode != "none") {
        Add("preemption", Level::kOk,
            NameOf(i) + ": by " + mode + "; urgent work runs after " +
                std::to_string(preemption.latency_us()) + " us on a full device");
      } else if (preemption.switched_off()) {
        Add("preemption", Level::kOk, NameOf(i) + ": none, " + preemption.reason(),
            "for urgent work that waits for no running kernel, set preemption = \"auto\" and "
            "restart the daemon");
      } else {
        Add("preemption", Level::kWarning,
            NameOf(i) + ": none" + (preemption.reason().empty() ? "" : ", " + preemption.reason()),
            "urgent work waits for running kernels: let no other process use the GPU, use NVIDIA's "
            "driver 580 or later, and run systemctl restart detshared; docs/preemption.md says "
            "more");
      }
    }
  }

  void RuntimeDirectory() {
    const std::string directory = DirectoryOf(host_.socket);
    struct statfs system;
    // The check of the socket has said so.
    if (statfs(directory.c_str(), &system) != 0)
      return Add("runtime-dir", Level::kUnknown, directory + ": " + ErrorText(errno));
    const uint64_t free = uint64_t{system.f_bavail} * static_cast<uint64_t>(system.f_bsize);
    if (system.f_type != TMPFS_MAGIC) {
      const bool soft = host_.status.has_value() && host_.status->backend() == "soft";
      return Add("runtime-dir", soft ? Level::kWarning : Level::kError,
                 directory + " is not on a tmpfs",
                 std::string(soft ? "software GPUs reach files there, slowly; real GPUs may not: "
                                  : "GPUs may not reach files there: ") +
                     "stop the daemon and mount one (mount -t tmpfs -o mode=0755,size=50% tmpfs " +
                     directory + "), or set socket to a path below /run or /dev/shm");
    }
    if (free < kLittleSpace) {
      return Add("runtime-dir", Level::kWarning,
                 directory + " has only " + text::Bytes(free) + " left",
                 "make it larger, because it holds sessions and pinned memory: mount -o "
                 "remount,size=50% " +
                     directory + " (or the mount above it)");
    }
    Add("runtime-dir", Level::kOk, directory + ", a tmpfs with " + text::Bytes(free) + " left");
  }

  void Shim() {
    std::string shim;
    for (const std::string& directory : host_.shim_directories) {
      if (shim.empty() && fs::exists(directory + "/libcuda.so.1")) shim = directory;
    }
    if (shim.empty()) {
      Add("shim", Level::kError, "DetShare's libcuda.so.1 is not where detshare run looks for it",
          "install detshare-client, or set DETSHARE_LIB_DIR to its directory");
    } else {
      Add("shim", Level::kOk, fs::weakly_canonical(shim).string() + "/libcuda.so.1");
    }
    for (const std::string& directory : Split(Variable("LD_LIBRARY_PATH"), ':')) {
      const std::string library = directory + "/libcuda.so.1";
      if (directory.empty() || !fs::exists(library)) continue;
      if (IsShim(library)) {
        Add("library-path", Level::kOk, "LD_LIBRARY_PATH leads to " + library);
      } else {
        Add("library-path", Level::kWarning,
            "LD_LIBRARY_PATH leads to another libcuda.so.1: " + library,
            "programs that detshare run does not start bypass the daemon: remove " + directory +
                " from LD_LIBRARY_PATH");
      }
      return;
    }
    Add("library-path", Level::kOk,
        "LD_LIBRARY_PATH leads to no libcuda.so.1: start programs with detshare run");
  }

  void Configuration() {
    const absl::StatusOr<std::string> text = ReadConfigFile(host_.config_file);
    if (text.status().code() == absl::StatusCode::kNotFound)
      return Add(
          "config", Level::kOk,
          "there is no " + host_.config_file +
              ": the defaults hold, unless the daemon has a file elsewhere (doctor --config FILE)");
    if (!text.ok()) {
      const bool readable = access(host_.config_file.c_str(), R_OK) == 0;
      return Add("config", readable ? Level::kError : Level::kUnknown,
                 std::string(text.status().message()),
                 readable ? "correct this, because detshared does not use such a file"
                          : "run detsharectl doctor as root");
    }
    const ParsedConfig parsed = ParseConfig(*text);
    const std::vector<ConfigProblem> problems = MistakesOf(parsed);
    if (!problems.empty()) {
      return Add(
          "config", Level::kError, FirstLine(ProblemText(host_.config_file, problems)),
          "correct the mistakes that detsharectl config check shows; the daemon does not start "
          "with them");
    }
    const std::vector<std::string> warnings = WarningsOf(parsed.config);
    if (!warnings.empty()) {
      return Add("config", Level::kWarning, host_.config_file + ": " + warnings.front(),
                 "detsharectl config check shows all warnings");
    }
    Add("config", Level::kOk, host_.config_file + " has no mistakes");
  }

  void Limits() {
    rlimit files{}, addresses{};
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_AS, &addresses);
    if (files.rlim_cur < kFewFiles) {
      Add("limits", Level::kError,
          "programs may open only " + text::Counted(files.rlim_cur, "file"),
          "run ulimit -n 1024 in this shell");
    } else if (addresses.rlim_cur < kLittleAddressSpace) {
      Add("limits", Level::kError,
          "programs may use only " + text::Bytes(addresses.rlim_cur) + " of addresses",
          "run ulimit -v unlimited in this shell");
    } else {
      Add("limits", Level::kOk, "this shell's limits of open files and addresses suffice");
    }
    if (daemon_pid() == 0) return;
    std::istringstream lines(
        ReadFile(host_.root + "/proc/" + std::to_string(daemon_pid()) + "/limits"));
    bool seen = false;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string max, what, soft;
      words >> max >> what;
      if (what == "open") {
        words >> max >> soft;
        seen = true;
        if (soft != "unlimited" && std::strtoull(soft.c_str(), nullptr, 10) < kFewFilesOfDaemon) {
          Add("daemon-limits", Level::kWarning, "the daemon's limit of open files is only " + soft,
              "set LimitNOFILE=1048576 in its unit, or run ulimit -n before you start it");
          return;
        }
      }
    }
    if (seen) {
      Add("daemon-limits", Level::kOk, "the daemon's limit of open files suffices");
    } else {
      Add("daemon-limits", Level::kUnknown, "the daemon's limits cannot be read",
          "run detsharectl doctor as root");
    }
  }

  // The first line of a file of the daemon's control group; "": there is no such file.
  std::string OfGroup(const std::string& group, const std::string& file) const {
    return FirstLine(ReadFile(host_.root + "/sys/fs/cgroup" + group + "/" + file));
  }

  void ControlGroup() {
    if (daemon_pid() == 0) return Add("cgroup", Level::kUnknown, kNeedsReply);
    std::string group;
    for (const std::string& line :
         Split(ReadFile(host_.root + "/proc/" + std::to_string(daemon_pid()) + "/cgroup"), '\n')) {
      if (line.rfind("0::", 0) == 0) group = line.substr(3);
    }
    if (group.empty())
      return Add("cgroup", Level::kUnknown, "the daemon is in no control group of version 2");
    const std::string memory = OfGroup(group, "memory.max"), cpu = OfGroup(group, "cpu.max"),
                      threads = OfGroup(group, "pids.max");
    bool limited = false;
    if (!memory.empty() && memory != "max") {
      limited = true;
      Add("cgroup", Level::kWarning,
          "the daemon may use only " + text::Bytes(std::strtoull(memory.c_str(), nullptr, 10)) +
              " of memory",
          "set MemoryMax=infinity in its unit, because the pinned memory of all programs counts");
    }
    if (!cpu.empty() && cpu.rfind("max", 0) != 0) {
      limited = true;
      Add("cgroup", Level::kWarning, "the daemon's CPU time is limited: cpu.max is " + cpu,
          "set CPUQuota= (empty) in its unit, because every launch of every program waits for the "
          "daemon");
    }
    if (!threads.empty() && threads != "max" && std::strtoull(threads.c_str(), nullptr, 10) < 512) {
      limited = true;
      Add("cgroup", Level::kWarning, "the daemon's limit of threads is only " + threads,
          "set TasksMax=infinity in its unit, because each session takes a thread");
    }
    if (!limited) Add("cgroup", Level::kOk, "the daemon's control group sets no narrow limit");
  }

  void Mps() {
    for (const int pid : Processes(host_.root)) {
      const std::string name =
          FirstLine(ReadFile(host_.root + "/proc/" + std::to_string(pid) + "/comm"));
      // The kernel keeps 15 characters of a name.
      if (name.rfind("nvidia-cuda-mps", 0) != 0) continue;
      return Add(
          "mps", Level::kWarning, "MPS runs (pid " + std::to_string(pid) + ")",
          "end it (echo quit | nvidia-cuda-mps-control) and start its programs with detshare "
          "run: detshared refuses to be a client of MPS, and beside MPS the GPU divides its "
          "time between MPS and all of DetShare");
    }
    Add("mps", Level::kOk, "MPS does not run");
  }

  void Mig() {
    // The driver lists a GPU's parts here:
    // https://docs.nvidia.com/datacenter/tesla/mig-user-guide/#device-nodes-and-capabilities
    const std::string capabilities = "/proc/driver/nvidia/capabilities";
    std::set<std::string> divided;
    std::error_code error;
    for (const auto& gpu : fs::directory_iterator(host_.root + capabilities, error)) {
      std::error_code none;
      for (const auto& part : fs::directory_iterator(gpu.path() / "mig", none)) {
        if (part.path().filename().string().rfind("gi", 0) == 0)
          divided.insert(gpu.path().filename());
      }
    }
    if (divided.empty()) return Add("mig", Level::kOk, "no GPU is divided by MIG");
    std::string names;
    for (const std::string& name : divided) names += (names.empty() ? "" : ", ") + name;
    Add("mig", Level::kWarning, "MIG divides " + names,
        "detshared refuses the parts of such a GPU: turn MIG off (nvidia-smi -i GPU -mig 0), or "
        "show the daemon other GPUs with CUDA_VISIBLE_DEVICES=GPU-UUID");
  }

  void OtherProcesses() {
    const std::string nodes = host_.root + "/dev/nvidia";
    std::string others;
    bool all = true;
    for (const int pid : Processes(host_.root)) {
      if (pid == daemon_pid()) continue;
      std::error_code error;
      bool uses = false;
      for (const auto& entry :
           fs::directory_iterator(host_.root + "/proc/" + std::to_string(pid) + "/fd", error)) {
        std::error_code gone;
        const std::string file = fs::read_symlink(entry.path(), gone).string();
        // Counts only a GPU's own node, because monitors have nvidiactl open and no GPU.
        if (file.size() > nodes.size() && file.rfind(nodes, 0) == 0 && isdigit(file[nodes.size()]))
          uses = true;
      }
      if (error == std::errc::permission_denied) all = false;
      if (!uses) continue;
      const std::string name =
          FirstLine(ReadFile(host_.root + "/proc/" + std::to_string(pid) + "/comm"));
      others += (others.empty() ? "" : ", ") + name + " (pid " + std::to_string(pid) + ")";
    }
    if (!others.empty()) {
      return Add("gpu-processes", Level::kWarning,
                 "other processes use the GPU beside the daemon: " + others,
                 "start them with detshare run, because the GPU divides its time between them and "
                 "all of DetShare");
    }
    if (!all)
      return Add("gpu-processes", Level::kUnknown, "not all processes can be examined",
                 "run detsharectl doctor as root");
    Add("gpu-processes", Level::kOk, "no other process uses the GPU");
  }

  const Host& host_;
  bool connects_ = false;
  std::vector<Finding> findings_;
};

const char* LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kUnknown:
      return "unknown";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "";
}

int Count(const std::vector<Finding>& findings, Level level) {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [&](const Finding& one) { return one.level == level; }));
}

}  // namespace

std::vector<Finding> Examine(const Host& host) { return Examination(host).Make(); }

bool Broken(const std::vector<Finding>& findings) { return Count(findings, Level::kError) > 0; }

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& one : findings) {
    std::string level = LevelName(one.level), check = one.check;
    level.resize(8, ' ');
    check.resize(14, ' ');
    out += level + check + one.text + "\n";
    if (!one.advice.empty()) out += std::string(22, ' ') + "-> " + one.advice + "\n";
  }
  // A process chooses its own name, and no name may control the terminal.
  for (char& c : out) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) c = '?';
  }
  return out + "\n" + text::Counted(Count(findings, Level::kError), "error") + ", " +
         text::Counted(Count(findings, Level::kWarning), "warning") + "\n";
}

std::string FindingsJson(const std::vector<Finding>& findings) {
  using nlohmann::ordered_json;
  ordered_json list = ordered_json::array();
  for (const Finding& one : findings) {
    list.push_back({{"check", one.check},
                    {"level", LevelName(one.level)},
                    {"text", one.text},
                    {"advice", one.advice}});
  }
  const ordered_json out = {{"errors", Count(findings, Level::kError)},
                            {"warnings", Count(findings, Level::kWarning)},
                            {"findings", std::move(list)}};
  // A process chooses its own name, so the name may not be UTF-8.
  return JsonText(out);
}

}  // namespace detshare::ctl
