#include "server/serve_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "coroutine_runtime/device_scheduler.h"
#include "policy/status_macros.h"
#include "proto/admin.pb.h"
#include "proto/version.h"
#include "server/backends.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"
#include "server/base/remove_tree.h"
#include "server/base/thread_scheduling.h"
#include "server/daemon_options.h"
#include "server/engines/admission_channel.h"
#include "server/engines/engine_pages.h"
#include "server/engines/engine_process.h"
#include "server/engines/file_channel.h"
#include "server/engines/rights.h"
#include "server/reloader.h"
#include "server/services/admin_service.h"
#include "server/services/settings_store.h"
#include "server/session/address_layout.h"
#include "server/sessions/session_manager.h"
#include "server/shared_memory/shared_region.h"
#include "server/watchdog.h"

extern char** environ;

namespace detshare {
namespace {

using std::chrono::milliseconds;

// For the reply of the supervisor, which does nothing that takes long.
constexpr milliseconds kAdmissionTimeout(5000), kFilesTimeout(5000), kPeersTimeout(1000);
// How long a process with a lost device goes on. Clients learn of the loss from their sessions'
// files; in this time gRPC sends the message with the reason.
constexpr milliseconds kMessageTime(50);

// An engine's channels to the supervisor.
struct EngineChannels {
  std::unique_ptr<EnginePages> pages;           // null: this process serves all programs
  std::unique_ptr<EngineMember> member;         // null: this process serves all programs
  std::unique_ptr<AdmissionChannel> admission;  // null: this process admits sessions without asking
  std::unique_ptr<FileChannel> files;           // null: this process opens clients' files itself
};

// Gives the daemon the files of the engine's directory, which has this name.
void UseEngineDirectory(const std::string& name, const std::string& runtime_directory,
                        Daemon::Options* daemon) {
  daemon->server.runtime_directory = EngineDirectory(runtime_directory, name);
  daemon->directory_for_clients = EngineDirectoryForClients(name);
  // Connections at the main socket come from the supervisor.
  daemon->socket = EngineSocket(daemon->server.runtime_directory);
}

// A spare engine leaves the devices when somebody needs its room there.
void SetLeavesRoom(bool leaves, EnginePage* page) {
  for (EnginePage::DeviceWords& device : page->devices)
    device.room.more_comes.store(leaves ? 1 : 0, std::memory_order_relaxed);
}

// Makes this process an engine, if its flags say so, and its options those of the engine's daemon.
absl::StatusOr<EngineChannels> BecomeEngine(Startup* startup) {
  Flags& flags = startup->flags;
  EngineChannels channels;
  if (flags.engine_fd < 0) return channels;
  const EngineUser user{flags.engine_user, flags.engine_group};
  const bool own_user = user.uid != 0;
  AllowPromptThreads();
  if (own_user) DETSHARE_RETURN_IF_ERROR(BecomeUser(user));
  DropRights();
  fcntl(flags.engine_fd, F_SETFD, FD_CLOEXEC);
  Daemon::Options& daemon = startup->daemon;
  daemon.inherited_settings = SettingsFile(daemon.server.runtime_directory);
  startup->backend.proof_directory = SharedDirectory(daemon.server.runtime_directory);
  startup->backend.soft_directory = startup->backend.proof_directory;
  startup->backend.daemon_number = NumberOfDaemon(daemon.server.runtime_directory);
  UseEngineDirectory(flags.engine_directory, daemon.server.runtime_directory, &daemon);
  if (own_user) {
    // For the code that the driver compiles while this is a spare engine.
    if (flags.engine.empty() && chdir(daemon.server.runtime_directory.c_str()) != 0)
      LogWarning("cannot change to ", daemon.server.runtime_directory, ": ", ErrnoText(errno));
    // The supervisor has made its directory. It may not write in others.
    startup->backend.soft_directory = daemon.server.runtime_directory;
    daemon.profile_directory.clear();
  } else {
    // No other user may see what is in the directory.
    DETSHARE_RETURN_IF_ERROR(MakeSharedDirectory(daemon.server.runtime_directory));
  }
  // The programs of an isolation group can end each other anyway.
  startup->backend.managed = {kManagedBegin, kManagedBytes};
  DETSHARE_ASSIGN_OR_RETURN(channels.pages, EnginePages::Create());
  daemon.server.replaceable = true;
  daemon.server.engine_page = &channels.pages->own();
  daemon.server.engine_peers = &channels.pages->peers();
  startup->backend.page = daemon.server.engine_page;
  startup->backend.peers = daemon.server.engine_peers;
  DETSHARE_ASSIGN_OR_RETURN(
      channels.member,
      EngineMember::Create(flags.engine_fd, channels.pages->fd(), daemon.server.runtime_directory,
                           milliseconds(flags.engine_idle_ms)));
  daemon.server.wake_engines = [member = channels.member.get()] { member->ReportWantsRoom(); };
  daemon.group = flags.engine;
  SetLeavesRoom(flags.engine.empty(), daemon.server.engine_page);
  daemon.observer = [member = channels.member.get()] { return member->supervisor(); };
  daemon.note = [member = channels.member.get()](const DaemonEvent& event) {
    // The supervisor knows when an engine starts.
    if (event.kind != DaemonEvent::Kind::kStarted) member->Report(event);
  };
  daemon.used = [member = channels.member.get()](uint64_t endpoint,
                                                 const EndpointUse::Figures& figures) {
    return member->ReportUse(endpoint, figures);
  };
  daemon.observe = daemon.http.has_value();
  daemon.http.reset();  // the supervisor serves HTTP for all engines
  daemon.socket_mode = 0600;
  daemon.listen_fd = -1;
  daemon.keep_socket = false;
  flags.remove_runtime_directory = false;
  flags.ready_fd = -1;
  fcntl(flags.admission_fd, F_SETFD, FD_CLOEXEC);
  channels.admission = std::make_unique<AdmissionChannel>(flags.admission_fd, kAdmissionTimeout);
  daemon.admission = channels.admission.get();
  fcntl(flags.files_fd, F_SETFD, FD_CLOEXEC);
  channels.files = std::make_unique<FileChannel>(flags.files_fd, kFilesTimeout);
  daemon.server.open_client_file = [files = channels.files.get()](const std::string& ticket,
                                                                  const ClientMapping& mapping,
                                                                  uint64_t bytes) {
    return files->Open(ticket, mapping, bytes);
  };
  return channels;
}

// Executes this program again. The new process takes over the socket and continues the numbers of
// sessions and of device losses.
[[noreturn]] void ReplaceProcess(const Startup& startup, Daemon& daemon) {
  std::vector<std::string> command = CommandWithout(
      startup.command, {"--listen-fd", "--first-session", "--ready-fd", "--device-losses"});
  for (const std::string& more :
       {std::string("--listen-fd"), absl::StrCat(daemon.listen_fd()),
        std::string("--first-session"), absl::StrCat(daemon.manager().next_session()),
        std::string("--device-losses"), absl::StrCat(startup.daemon.device_losses + 1)}) {
    command.push_back(more);
  }
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  LogWarning("starting anew: nothing else brings a lost device back");
  std::this_thread::sleep_for(kMessageTime);
  fcntl(daemon.listen_fd(), F_SETFD, 0);
  execve("/proc/self/exe", argv.data(), environ);
  LogError("cannot execute this program again");
  _exit(1);
}

// Returns the state of a daemon that serves, for the service manager.
std::string Summary(const Startup& startup, Daemon& daemon) {
  const size_t devices = daemon.manager().devices().size();
  return absl::StrCat("serving ", devices, devices == 1 ? " device" : " devices", " (",
                      startup.daemon.backend, "), sessions: ", daemon.manager().Sessions().size());
}

// Returns null if the service manager expects no messages. `startup` and `daemon` outlive the
// watchdog.
std::unique_ptr<Watchdog> StartWatchdog(const Startup& startup, Daemon& daemon) {
  const ServiceManager& service_manager = startup.service_manager;
  if (service_manager.watchdog().count() == 0) return nullptr;
  // Two checks fit into the time allowed, each with its timeout.
  const auto period =
      std::chrono::duration_cast<milliseconds>(service_manager.watchdog() / 4) + milliseconds(1);
  return std::make_unique<Watchdog>(
      period,
      [&startup, &daemon, period]() -> absl::Status {
        DETSHARE_RETURN_IF_ERROR(daemon.manager().DeviceHealth());
        startup.service_manager.Say(Summary(startup, daemon));
        return AskDaemon(startup.daemon.socket, period);
      },
      [&service_manager] { service_manager.Alive(); });
}

// Reads the configuration again. `who` is as in Reloader::Reload().
absl::StatusOr<Reloader::Report> Reload(const ServiceManager& service_manager, Reloader& reloader,
                                        const std::string& who) {
  service_manager.Reloading();
  absl::StatusOr<Reloader::Report> report = reloader.Reload(who);
  service_manager.Ready();
  return report;
}

// Lets operators reload by `detsharectl`.
void OfferReload(const ServiceManager& service_manager, Reloader& reloader, Daemon& daemon) {
  daemon.admin().OnReload(
      [&service_manager, &reloader](const std::string& who) -> absl::StatusOr<proto::Reloaded> {
        DETSHARE_ASSIGN_OR_RETURN(const Reloader::Report report,
                                  Reload(service_manager, reloader, who));
        return ToMessage(report);
      });
}

void TakePeers(const Received& received, EnginePages& pages) {
  if (received.peer.has_value()) {
    if (const absl::Status added = pages.Add(received.peer->pid, received.peer->page); !added.ok())
      LogWarning("no turns with engine ", received.peer->pid, ": ", std::string(added.message()));
  }
  if (received.peers.has_value()) pages.Keep(*received.peers);
}

// While the object exists, a thread learns of the engines that come and go.
class PeersMeanwhile {
 public:
  explicit PeersMeanwhile(const EngineChannels& channels)
      : stop_(eventfd(0, EFD_CLOEXEC)), thread_([this, &channels] {
          channels.member->TakePeers(
              [&channels](const Received& received) { TakePeers(received, *channels.pages); },
              stop_);
        }) {}
  ~PeersMeanwhile() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof(one));
    thread_.join();
    close(stop_);
  }
  PeersMeanwhile(const PeersMeanwhile&) = delete;
  PeersMeanwhile& operator=(const PeersMeanwhile&) = delete;

 private:
  const int stop_;
  std::thread thread_;
};

// For a spare engine, whose devices are open: waits for its isolation group, and serves it from then on.
// `runtime_directory` is the supervisor's. Returns false if the process must end.
bool AwaitGroup(const std::string& runtime_directory, const EngineChannels& channels,
                Startup* startup) {
  const std::optional<Assignment> assignment = channels.member->AwaitAssignment(
      [&channels](const Received& received) { TakePeers(received, *channels.pages); },
      startup->signal_fd);
  if (!assignment.has_value()) return false;
  if (!assignment->cache.empty() && chdir(assignment->cache.c_str()) != 0)
    LogWarning("the driver keeps no code: cannot change to ", assignment->cache, ": ",
               ErrnoText(errno));
  UseEngineDirectory(assignment->directory, runtime_directory, &startup->daemon);
  startup->daemon.group = assignment->group;
  SetLeavesRoom(false, &channels.pages->own());
  return true;
}

// The daemon takes turns on the devices with other engines than before.
void NotePeers(Daemon& daemon) {
  for (DeviceScheduler* const scheduler : daemon.manager().Schedulers()) scheduler->NotePeers();
}

// Handles signals, lost devices and the messages of the supervisor until the daemon must
// end. `lost_fd` is readable once a device is lost. The channels may be null.
void HandleEvents(const Startup& startup, int lost_fd, const EngineChannels& channels,
                  Reloader& reloader, Daemon& daemon) {
  EngineMember* const member = channels.member.get();
  if (member != nullptr) NotePeers(daemon);
  for (;;) {
    pollfd fds[4] = {{startup.signal_fd, POLLIN, 0},
                     {lost_fd, POLLIN, 0},
                     {member != nullptr ? member->fd() : -1, POLLIN, 0},
                     {daemon.save_fd(), POLLIN, 0}};
    if (poll(fds, 4, member != nullptr ? member->timeout() : -1) < 0) continue;
    if (fds[3].revents != 0) daemon.SaveAgain();
    if (fds[1].revents != 0) {
      if (member == nullptr) {
        startup.service_manager.Say("a device was lost: starting anew");
        ReplaceProcess(startup, daemon);
      }
      // The supervisor starts another engine when the group's next connection comes.
      member->ReportLoss();
      std::this_thread::sleep_for(kMessageTime);
      _exit(1);
    }
    const auto take = [&](const Received& received) {
      if (received.connection.has_value()) daemon.Take(*received.connection);
      if (received.closed_endpoint.has_value()) daemon.CloseEndpoint(*received.closed_endpoint);
      if (received.order == EngineOrder::kReload)
        Reload(startup.service_manager, reloader, "supervisor").IgnoreError();
      if (received.admission >= 0) channels.admission->Replace(received.admission);
      if (received.files >= 0) channels.files->Replace(received.files);
      if (received.peer.has_value() || received.peers.has_value()) {
        TakePeers(received, *channels.pages);
        NotePeers(daemon);
      }
      if (received.look_for_room) daemon.manager().LookForRoom();
      if (received.shared_tenant.has_value()) {
        daemon.manager().tenant_board().Share(received.shared_tenant->peer,
                                              received.shared_tenant->tenant);
      }
    };
    if (member != nullptr && !member->Proceed(take, [&daemon] { return daemon.InUse(); })) return;
    if (fds[0].revents == 0) continue;
    const SignalRequest request = TakeSignal(startup);
    if (request == SignalRequest::kEnd || request == SignalRequest::kEndAll) return;
    if (request == SignalRequest::kReload)
      Reload(startup.service_manager, reloader, "SIGHUP").IgnoreError();
  }
}

// Ends the daemon and removes its files. Does not return if kernels are still running.
void End(const Startup& startup, std::unique_ptr<Daemon> daemon) {
  const std::string& runtime_directory = startup.daemon.server.runtime_directory;
  const bool empty = daemon->Stop(kEndTimeout);
  if (!empty) {
    LogWarning("kernels are still running; ending anyway");
    RemoveTree(runtime_directory + "/sessions");
  } else {
    daemon.reset();
  }
  if (startup.flags.remove_runtime_directory) RemoveTree(runtime_directory);
  if (!empty) _exit(0);
}

}  // namespace

int ServeDaemon(Startup startup) {
  const std::string runtime_directory = startup.daemon.server.runtime_directory;
  // The daemon uses the channels, so they outlive it.
  absl::StatusOr<EngineChannels> engine = BecomeEngine(&startup);
  if (!engine.ok()) {
    LogError(std::string(engine.status().message()));
    return 1;
  }
  const EngineChannels channels = *std::move(engine);
  // The backend must not change time slices beside the work of engines that it does not know, also of
  // those that begin to serve before this one.
  std::optional<PeersMeanwhile> peers;
  if (channels.member != nullptr) {
    channels.member->AwaitPeers(
        [&channels](const Received& received) { TakePeers(received, *channels.pages); },
        kPeersTimeout);
    peers.emplace(channels);
  }
  absl::StatusOr<OpenedBackend> backend = OpenBackend(startup.backend);
  if (!backend.ok()) {
    LogError("no device: ", std::string(backend.status().message()));
    return 1;
  }
  if (channels.member != nullptr && startup.flags.engine.empty()) {
    peers.reset();
    if (!AwaitGroup(runtime_directory, channels, &startup)) return 0;
    peers.emplace(channels);
  }
  Daemon::Options& options = startup.daemon;
  ApplyConfigOfBackend(startup.config, backend->name, &options.server);
  options.backend = backend->name;
  options.host_telemetry = std::move(backend->telemetry);
  const int lost_fd = eventfd(0, EFD_CLOEXEC);
  if (channels.member != nullptr)
    options.ended_work = [member = channels.member.get()](EndedWork work) { member->Report(work); };
  options.device_lost = [lost_fd] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(lost_fd, &one, sizeof(one));
  };
  absl::StatusOr<std::unique_ptr<Daemon>> started =
      Daemon::Start(std::move(backend->devices), options);
  if (!started.ok()) {
    LogError(std::string(started.status().message()));
    return 1;
  }
  std::unique_ptr<Daemon> daemon = *std::move(started);
  if (!ThreadScheduling::MayBePrompt()) {
    LogInfo(
        "workers of latency tenants poll while all CPUs are busy, because threads here may not "
        "have the nice value -20: allow it with LimitNICE=-20, or the capability SYS_NICE");
  }
  LogInfo("detshared ", kVersion, " serves at ", options.socket, ", backend ", options.backend,
          ", policy ", options.server.policy);
  AnnounceReady(startup);
  std::unique_ptr<Watchdog> watchdog = StartWatchdog(startup, *daemon);
  Reloader reloader(
      startup.config, [&startup] { return ReadAgain(startup); }, *daemon,
      options.inherited_settings);
  // The supervisor tells an engine to reload.
  if (!startup.flags.config_file.empty() && channels.member == nullptr)
    OfferReload(startup.service_manager, reloader, *daemon);
  peers.reset();
  HandleEvents(startup, lost_fd, channels, reloader, *daemon);
  daemon->admin().OnReload(nullptr);  // the reloader ends before the daemon
  LogInfo("detshared ends");
  startup.service_manager.Stopping();
  watchdog.reset();
  End(startup, std::move(daemon));
  return 0;
}

}  // namespace detshare
