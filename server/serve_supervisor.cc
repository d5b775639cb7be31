#include "server/serve_supervisor.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "policy/config/user_range.h"
#include "policy/status_macros.h"
#include "proto/admin.pb.h"
#include "proto/mutex.h"
#include "proto/quiet_grpc.h"
#include "proto/version.h"
#include "server/access/acceptor.h"
#include "server/access/arrivals.h"
#include "server/access/identity.h"
#include "server/access/owners.h"
#include "server/access/peer_table.h"
#include "server/access/refusals.h"
#include "server/base/errno_text.h"
#include "server/base/event_log.h"
#include "server/base/grpc_limits.h"
#include "server/base/kept_file.h"
#include "server/base/logging.h"
#include "server/base/remove_tree.h"
#include "server/base/retry_timer.h"
#include "server/daemon_options.h"
#include "server/device_inquiry.h"
#include "server/directories.h"
#include "server/engine_watch.h"
#include "server/engines/engine_process.h"
#include "server/engines/engine_users.h"
#include "server/engines/engines.h"
#include "server/engines/isolation_group.h"
#include "server/reload_report.h"
#include "server/serve_daemon.h"
#include "server/services/endpoint_host.h"
#include "server/services/engine_calls.h"
#include "server/services/known_devices.h"
#include "server/services/reflection_service.h"
#include "server/services/settings_store.h"
#include "server/services/supervisor_service.h"
#include "server/services/tenant_endpoints.h"
#include "server/shared_memory/shared_region.h"
#include "server/tenants/tenant_accounts.h"
#include "server/watchdog.h"
#include "server/web/engines_observer.h"
#include "server/web/http_server.h"
#include "server/web/serve_pages.h"

namespace detshare {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kEnginesTimeout(2000);  // for replies of engines
// An engine that does not reply for about a minute hangs: EngineWatch::kMaxUnanswered times both.
constexpr milliseconds kWatchPeriod(10'000), kWatchTimeout(5'000);
// For the end of engines that no program uses, when the supervisor ends.
constexpr milliseconds kReleaseTimeout(2000);
// Bounds of a list of devices, which must fit a message to an engine.
constexpr size_t kMaxDeviceIds = 64, kMaxDeviceId = 64;
// Entries of an endpoint's directory of sessions that are looked at. A container may make any number.
constexpr int kMaxEntries = 1024;

// No group's directory has this name.
std::string ConfigurationOfEngines(const std::string& runtime_directory) {
  return EnginesDirectory(runtime_directory) + "/.config";
}

std::string NextConfigurationOfEngines(const std::string& runtime_directory) {
  return ConfigurationOfEngines(runtime_directory) + ".next";
}

// Takes the directory of an earlier supervisor, or makes one.
absl::Status TakeEnginesDirectory(const std::string& path) {
  struct stat found {};
  const bool ours = lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
                    found.st_uid == geteuid() && (found.st_mode & 0022) == 0;
  if (ours) return absl::OkStatus();
  DETSHARE_RETURN_IF_ERROR(TryRemoveTree(path));
  return MakeSharedDirectory(path);
}

// Lets other threads have the supervisor's thread do something.
class Errands {
 public:
  Errands() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Errands() { close(wake_); }
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  // Any thread may call it.
  void Post(std::function<void()> errand) {
    {
      const MutexLock lock(&mutex_);
      errands_.push_back(std::move(errand));
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  }
  // Readable when Proceed() has something to do.
  int fd() const { return wake_; }
  // Called by the supervisor's thread.
  void Proceed() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof(count));
    std::vector<std::function<void()>> errands;
    {
      const MutexLock lock(&mutex_);
      errands.swap(errands_);
    }
    for (const std::function<void()>& errand : errands) errand();
  }

 private:
  const int wake_;
  Mutex mutex_;
  std::vector<std::function<void()>> errands_ ABSL_GUARDED_BY(mutex_);
};

class Supervisor final : public EndpointHost {
 public:
  explicit Supervisor(const Startup& startup)
      : startup_(startup),
        daemon_(startup.daemon),
        runtime_directory_(startup.daemon.server.runtime_directory),
        applied_(startup.config),
        groups_(GroupsOf(startup.config)),
        users_(ParseUserRange(startup.config.engine_users)),
        // The store checks numbers against the devices, which only engines know.
        settings_({}, accounts_, std::numeric_limits<int>::max(), SettingsOf(daemon_.server),
                  SettingsFile(runtime_directory_),
                  users_.has_value() ? EngineUsers(*users_).group() : 0) {
    accounts_.SetDefault(daemon_.server.default_quota);
    settings_.OnChange([this] { errands_.Post([this] { LimitSessions(); }); });
  }

  // Makes the directory of the engines, listens, and serves operators.
  absl::Status Start();
  // Handles connections, ended engines and signals until the daemon must end. Returns whether the
  // engines must end, too.
  bool HandleEvents();
  // Ends the engines, or leaves them to the next supervisor if programs use them.
  void Finish(bool end_engines);
  void EndServers();

  // ---- EndpointHost
  bool SessionsGoOn() const override { return true; }
  absl::StatusOr<std::vector<std::string>> DevicesOf(const std::vector<std::string>& ids) override;
  absl::Status SetTenant(uint64_t endpoint, const proto::TenantSetting& change) override;
  void Begin(int listen_fd, std::shared_ptr<TenantEndpoint> endpoint) override;
  void Stop(int listen_fd) override;
  void End(const TenantEndpoint& endpoint) override;

 private:
  // Engines read a copy of the configuration in force, because the operator's file may have mistakes
  // or edits that no reload has put in force, and because engines with users of their own may not
  // read it. The first function does what can fail, and the second one gives engines the copy.
  absl::Status PrepareCopy(const std::string& text) const;
  void UseCopy();
  bool CopiesConfiguration() const { return !startup_.flags.config_file.empty(); }
  // Give engines the settings, and the configuration that the supervisor began with. If that fails,
  // because the file system is full, engines keep what an earlier supervisor gave them, so that this
  // one can serve, and WriteAgain() tries again. An engine that finds nothing does not begin.
  void GiveSettings();
  void GiveConfiguration();
  // Whether engines lack one of them.
  bool Unwritten() const { return !settings_.written() || lacks_configuration_; }
  // Writes what could not be written before.
  void WriteAgain();
  absl::Status StartServices();
  absl::Status ServeHttp();
  // The command line of a process that reads the configuration as this one does.
  std::vector<std::string> EngineCommand() const;
  Engines::Options EngineOptions();
  // Decides who a connection is, and gives it to an engine or to this process's services.
  void Take(int connection, Peer peer, const std::optional<std::string>& wish);
  // Gives the connection, for which a tenant is decided, to an engine.
  void Pass(int connection, const Peer& peer, std::shared_ptr<TenantEndpoint> endpoint);
  // Lets RefusalService say why the program gets no session. Events and the log may not have it.
  void Refuse(int connection, Peer peer);
  // Returns whether to tell of the refusal, and with which text.
  bool NoteRefusal(DaemonEvent& refusal);
  // Reads the configuration again and tells the engines to do the same. `who` names the requester.
  // With an error, nothing changes. Apply() does so without log, event and service manager.
  absl::StatusOr<ReloadReport> Reload(const std::string& who);
  absl::StatusOr<ReloadReport> Apply();
  // Lets the limits of sessions in force hold over all engines.
  void LimitSessions();
  // Keeps as many spare engines as the configuration in force says.
  void KeepSpares();
  void CountUse(const EngineInfo& engine, const Reported::Use& use);
  void Note(DaemonEvent::Kind kind, const EngineInfo& engine, std::string text);
  // Removes what the sessions of an engine that has ended left in the endpoints' directories.
  void RemoveSessions(const std::vector<uint64_t>& sessions);
  // Returns the directories of sessions of all endpoints, with the sessions' numbers.
  std::map<std::string, uint64_t> SessionDirectories() const;

  const Startup& startup_;
  const Daemon::Options& daemon_;
  const std::string runtime_directory_;
  RuntimeLock runtime_lock_;
  Config applied_;  // the configuration in force
  IsolationGroups groups_;
  const std::optional<UserRange> users_;  // of engines; nothing: engines run as this process's user
  Errands errands_;                       // outlives everything that posts some
  bool restoring_ = true;                 // endpoints of an earlier supervisor are opened again
  bool lacks_configuration_ = false;      // engines do not have that of startup_
  // Whether the devices are GPUs, and not software GPUs. Nothing: they are not described yet, and their
  // preemption is being proved, which spare engines would disturb.
  std::optional<bool> has_gpus_;
  RetryTimer write_timer_;  // runs while something is unwritten
  Identity identity_;
  PeerTable peers_;
  Owners owners_;  // of endpoints_
  EventLog events_;
  Refusals told_refusals_;      // of this process and of engines; the supervisor's thread uses it
  TenantAccounts accounts_{0};  // only takes the limits, which engines enforce
  SettingsStore settings_;
  RunningEngines running_;
  std::unique_ptr<KnownDevices> devices_;
  std::unique_ptr<EngineCalls> calls_;
  std::unique_ptr<SupervisorService> admin_;
  std::unique_ptr<RefusalService> refusals_;
  std::unique_ptr<ReflectionService> reflection_;
  std::unique_ptr<grpc::Server> operators_, refused_;
  std::unique_ptr<EnginesObserver> observer_;  // null: HTTP is not served
  std::unique_ptr<HttpServer> http_;           // asks observer_; null: HTTP is not served
  std::unique_ptr<Engines> engines_;
  std::unique_ptr<EngineWatch> watch_;  // posts errands for engines_
  std::unique_ptr<Arrivals> arrivals_;
  int listen_fd_ = -1;
  // The endpoints at whose sockets arrivals_ accepts, by their sockets.
  std::map<int, std::shared_ptr<TenantEndpoint>> endpoint_sockets_;
  std::unique_ptr<TenantEndpoints> endpoints_;
  std::unique_ptr<TenantEndpointService> endpoint_service_;
};

absl::Status Supervisor::Start() {
  MakeDirectories(daemon_.socket, runtime_directory_);
  // An engine says it only when it starts, with the first program.
  if (startup_.backend.backend != "soft") WarnUnlessOnTmpfs(runtime_directory_);
  if (users_.has_value()) DETSHARE_RETURN_IF_ERROR(EngineUsers::Check(runtime_directory_));
  DETSHARE_RETURN_IF_ERROR(LockSocket(daemon_.socket));
  DETSHARE_RETURN_IF_ERROR(runtime_lock_.Take(runtime_directory_));
  DETSHARE_RETURN_IF_ERROR(TakeEnginesDirectory(EnginesDirectory(runtime_directory_)));
  identity_.SetRules(daemon_.tenant_rules);
  DETSHARE_RETURN_IF_ERROR(StartServices());
  GiveSettings();
  if (daemon_.http.has_value()) DETSHARE_RETURN_IF_ERROR(ServeHttp());
  engines_ = std::make_unique<Engines>(EngineOptions());
  engines_->Adopt();
  GiveConfiguration();
  devices_->Refresh();
  engines_->Reload();
  KeepSpares();
  arrivals_ = std::make_unique<Arrivals>(
      [this](int connection, Peer peer, const std::optional<std::string>& wish) {
        Take(connection, std::move(peer), wish);
      });
  listen_fd_ = daemon_.listen_fd;
  if (listen_fd_ < 0) {
    DETSHARE_ASSIGN_OR_RETURN(listen_fd_, ListenOn(daemon_.socket, daemon_.socket_mode));
  }
  arrivals_->Listen(listen_fd_);
  DaemonEvent begun;
  begun.pid = getpid();
  begun.uid = geteuid();
  begun.text = absl::StrCat("isolation by ", startup_.config.isolation);
  events_.Add(std::move(begun));
  return absl::OkStatus();
}

absl::Status Supervisor::PrepareCopy(const std::string& text) const {
  if (!CopiesConfiguration()) return absl::OkStatus();
  const absl::Status written = WriteKeptFile(NextConfigurationOfEngines(runtime_directory_), text,
                                             users_.has_value() ? EngineUsers(*users_).group() : 0);
  if (written.ok()) return written;
  return absl::ResourceExhaustedError(
      absl::StrCat("engines would not get the configuration: ", std::string(written.message()),
                   "; free space there and try again"));
}

void Supervisor::UseCopy() {
  if (!CopiesConfiguration()) return;
  lacks_configuration_ = false;
  const std::string copy = ConfigurationOfEngines(runtime_directory_);
  if (rename(NextConfigurationOfEngines(runtime_directory_).c_str(), copy.c_str()) != 0)
    LogError("engines go on with the configuration before: cannot write ", copy, ": ",
             ErrnoText(errno));
}

void Supervisor::GiveSettings() {
  const absl::Status kept = settings_.Keep();
  if (kept.ok()) return;
  write_timer_.Start();
  const bool earlier = access(SettingsFile(runtime_directory_).c_str(), F_OK) == 0;
  LogWarning(std::string(kept.message()), "; until that succeeds, ",
             earlier ? "engines have the settings and limits of the supervisor before this one"
                     : "no engine begins, because it would have no limits",
             ": free space there");
}

void Supervisor::GiveConfiguration() {
  const absl::Status prepared = PrepareCopy(startup_.config_text);
  if (prepared.ok()) return UseCopy();
  lacks_configuration_ = true;
  write_timer_.Start();
  const bool earlier = access(ConfigurationOfEngines(runtime_directory_).c_str(), F_OK) == 0;
  LogWarning(std::string(prepared.message()), "; until that succeeds, ",
             earlier ? "engines that begin have the configuration of the supervisor before this one"
                     : "no engine begins");
}

void Supervisor::WriteAgain() {
  write_timer_.Clear();
  if (!Unwritten()) return;
  if (lacks_configuration_ && PrepareCopy(startup_.config_text).ok()) UseCopy();
  if (!settings_.written()) settings_.Keep().IgnoreError();
  if (Unwritten()) return write_timer_.Start();
  LogInfo("engines have the settings and the configuration of this supervisor now");
  devices_->Refresh();
  engines_->Reload();
}

absl::Status Supervisor::StartServices() {
  StartQuietGrpc();
  events_.KnowOwners([this](uint64_t endpoint) { return owners_.OfNumber(endpoint); });
  calls_ = std::make_unique<EngineCalls>(running_, EngineCalls::Times{.reply = kEnginesTimeout});
  watch_ = std::make_unique<EngineWatch>(
      running_, kWatchPeriod,
      EngineWatch::Work{.ask =
                            [](const EngineInfo& engine) {
                              return AskDaemon(EngineSocket(engine.directory), kWatchTimeout);
                            },
                        .stopped = [](const EngineInfo& engine) { return IsStopped(engine.pid); },
                        .end =
                            [this](const EngineInfo& engine) {
                              errands_.Post([this, pid = engine.pid] { engines_->EndHung(pid); });
                            }});
  const auto changed = [this] { errands_.Post([this] { engines_->Reload(); }); };
  devices_ = std::make_unique<KnownDevices>(
      [this, command = EngineCommand()](const std::atomic<bool>& stop) {
        absl::StatusOr<proto::Status> reply = InquireDevices(command, stop);
        if (reply.ok()) {
          errands_.Post([this, gpus = reply->backend() != "soft"] {
            has_gpus_ = gpus;
            KeepSpares();
          });
        }
        return reply;
      });
  admin_ = std::make_unique<SupervisorService>(*calls_, *devices_, settings_, changed, events_,
                                               owners_, identity_, peers_);
  if (!startup_.flags.config_file.empty()) {
    admin_->OnReload([this](const std::string& who, SupervisorService::Reloaded done) {
      errands_.Post([this, who, done = std::move(done)] {
        const absl::StatusOr<ReloadReport> report = Reload(who);
        done(report.ok() ? absl::StatusOr<proto::Reloaded>(ToMessage(*report)) : report.status());
      });
    });
  }
  refusals_ = std::make_unique<RefusalService>(peers_);
  grpc::EnableDefaultHealthCheckService(true);  // gRPC implements grpc.health.v1
  DETSHARE_ASSIGN_OR_RETURN(endpoints_,
                            TenantEndpoints::Create(runtime_directory_, *this, owners_));
  restoring_ = false;
  endpoint_service_ =
      std::make_unique<TenantEndpointService>(*endpoints_, events_, peers_, identity_);
  reflection_ = std::make_unique<ReflectionService>(std::vector<std::string>{
      "detshare.proto.Admin", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"});
  grpc::ServerBuilder operators, refused;
  operators.RegisterService(reflection_.get());
  operators.RegisterService(admin_.get());
  operators.RegisterService(endpoint_service_.get());
  refused.RegisterService(refusals_.get());
  SetLimits(&operators);
  SetLimits(&refused);
  operators_ = operators.BuildAndStart();
  refused_ = refused.BuildAndStart();
  if (operators_ == nullptr || refused_ == nullptr)
    return absl::InternalError("gRPC does not start");
  return absl::OkStatus();
}

absl::Status Supervisor::ServeHttp() {
  EnginesObserver::Options watched;
  watched.dashboard = daemon_.dashboard;
  for (const policy::Tenant& tenant : daemon_.server.tenants)
    watched.tenants.push_back(tenant.name);
  watched.max_sessions = daemon_.server.max_sessions;
  observer_ = std::make_unique<EnginesObserver>(owners_, watched);
  DETSHARE_ASSIGN_OR_RETURN(
      http_,
      ServePages({*daemon_.http, daemon_.http_mode, daemon_.http_token_file, daemon_.dashboard},
                 [this](const HttpRequest& request) { return observer_->Respond(request); }));
  return absl::OkStatus();
}

std::vector<std::string> Supervisor::EngineCommand() const {
  std::vector<std::string> command =
      CommandWithout(startup_.command, {"--listen-fd", "--ready-fd", "--runtime-dir"});
  // An engine would choose another directory if the service manager has made the socket at a path
  // that the configuration does not name, or if the file names another path by now.
  command.insert(command.end(), {"--runtime-dir", runtime_directory_});
  if (CopiesConfiguration()) {
    command = CommandWithout(command, {"--config"});
    command.insert(command.end(), {"--config", ConfigurationOfEngines(runtime_directory_)});
  }
  return command;
}

Engines::Options Supervisor::EngineOptions() {
  Engines::Options options;
  options.command = EngineCommand();
  options.runtime_directory = runtime_directory_;
  options.limits = LimitsOfSessions(startup_.config, settings_.current());
  options.users = users_;
  options.running = &running_;
  options.refuse = [this](const ClientConnection& connection, absl::Status why) {
    std::optional<Peer> peer = ReadPeer(connection.fd);
    if (!peer.has_value()) {
      close(connection.fd);
      return;
    }
    peer->endpoint = connection.endpoint;
    peer->tenant = std::move(why);
    Refuse(connection.fd, *std::move(peer));
  };
  options.begun = [this](const EngineInfo& engine, bool adopted) {
    Note(adopted ? DaemonEvent::Kind::kEngineAdopted : DaemonEvent::Kind::kEngineStarted, engine,
         "");
    if (observer_ != nullptr) observer_->Begun(engine);
    watch_->Begun();
  };
  options.ended = [this](const EngineInfo& engine, const EndedEngine& ended) {
    const bool idle = ended.how == EngineEnd::kAsked;
    Note(DaemonEvent::Kind::kEngineEnded, engine, idle ? "was idle" : ended.text);
    if (observer_ != nullptr) observer_->Ended(engine, ended.how);
    if (!idle) devices_->Refresh();
    RemoveSessions(ended.sessions);
  };
  options.noted = [this](DaemonEvent event) {
    // What this process does in the engines has an event of its own.
    if (event.pid == getpid()) return;
    if (event.kind == DaemonEvent::Kind::kRefused && !NoteRefusal(event)) return;
    events_.Add(std::move(event));
  };
  options.used = [this](const EngineInfo& engine, const Reported::Use& use) {
    CountUse(engine, use);
  };
  options.session_directories = [this] { return SessionDirectories(); };
  return options;
}

// An engine runs what clients send it, so it may count for endpoints of its own group only.
void Supervisor::CountUse(const EngineInfo& engine, const Reported::Use& use) {
  for (const auto& [socket, endpoint] : endpoint_sockets_) {
    Peer peer;
    peer.endpoint = endpoint;
    if (endpoint->number == use.endpoint && groups_.Of(peer, endpoint->tenant) == engine.group)
      endpoint->use.Add(use.figures);
  }
}

void Supervisor::Note(DaemonEvent::Kind kind, const EngineInfo& engine, std::string text) {
  DaemonEvent event;
  event.kind = kind;
  event.pid = engine.pid;
  event.uid = geteuid();
  event.text = absl::StrCat("isolation group ", engine.group, text.empty() ? "" : ": ", text);
  events_.Add(std::move(event));
}

void Supervisor::RemoveSessions(const std::vector<uint64_t>& sessions) {
  for (const auto& [socket, endpoint] : endpoint_sockets_) {
    for (const uint64_t session : sessions)
      RemoveTree(absl::StrCat(endpoint->sessions_directory, "/", session));
  }
}

std::map<std::string, uint64_t> Supervisor::SessionDirectories() const {
  std::map<std::string, uint64_t> directories;
  for (const auto& [socket, endpoint] : endpoint_sockets_) {
    std::error_code error;
    std::filesystem::directory_iterator entry(endpoint->sessions_directory + "/", error), end;
    for (int i = 0; !error && entry != end && i < kMaxEntries; entry.increment(error), ++i) {
      const std::string name = entry->path().filename().string();
      uint64_t session = 0;
      if (absl::SimpleAtoi(name, &session) && absl::StrCat(session) == name)
        directories[absl::StrCat(endpoint->sessions_directory, "/", name)] = session;
    }
  }
  return directories;
}

// The supervisor has no devices. An engine that does not know an id refuses the endpoint's programs.
absl::StatusOr<std::vector<std::string>> Supervisor::DevicesOf(
    const std::vector<std::string>& ids) {
  if (ids.size() > kMaxDeviceIds)
    return absl::InvalidArgumentError(absl::StrCat("at most ", kMaxDeviceIds, " devices"));
  for (const std::string& id : ids) {
    if (id.empty() || id.size() > kMaxDeviceId || !IsPlain(id))
      return absl::InvalidArgumentError("a device is an index or a UUID");
  }
  return ids;
}

// Engines read the settings from the file of the store, before connections that come later.
absl::Status Supervisor::SetTenant(uint64_t endpoint, const proto::TenantSetting& change) {
  // Start() writes them. The file of an earlier supervisor has them, too.
  if (restoring_) return settings_.RestoreForEndpoint(endpoint, change);
  DETSHARE_RETURN_IF_ERROR(settings_.SetForEndpoint(endpoint, change).status());
  errands_.Post([this] { engines_->Reload(); });
  return absl::OkStatus();
}

void Supervisor::Begin(int listen_fd, std::shared_ptr<TenantEndpoint> endpoint) {
  errands_.Post([this, listen_fd, endpoint = std::move(endpoint)] {
    endpoint_sockets_[listen_fd] = endpoint;
    arrivals_->Listen(listen_fd, endpoint);
  });
}

void Supervisor::Stop(int listen_fd) {
  errands_.Post([this, listen_fd] {
    arrivals_->Leave(listen_fd);
    endpoint_sockets_.erase(listen_fd);
    close(listen_fd);
  });
}

void Supervisor::End(const TenantEndpoint& endpoint) {
  if (const absl::Status unset = settings_.UnsetForEndpoint(endpoint.number); !unset.ok())
    LogWarning("the settings of endpoint ", endpoint.name,
               " stay in force: ", std::string(unset.message()));
  errands_.Post([this, number = endpoint.number] {
    engines_->CloseEndpoint(number);
    engines_->Reload();
  });
}

void Supervisor::Take(int connection, Peer peer, const std::optional<std::string>& wish) {
  if (peer.endpoint != nullptr) {
    // An endpoint admits no operators: such a connection gets the services for the refused.
    if (wish.has_value()) peer.tenant = identity_.TenantName(*wish, peer);
    if (!peer.tenant.ok()) return Refuse(connection, std::move(peer));
    const auto socket = std::find_if(endpoint_sockets_.begin(), endpoint_sockets_.end(),
                                     [&](const auto& one) { return one.second == peer.endpoint; });
    if (socket == endpoint_sockets_.end()) {
      close(connection);
      return;
    }
    return Pass(connection, peer, socket->second);
  }
  if (!wish.has_value()) {
    peers_.Add(connection, std::move(peer));
    grpc::AddInsecureChannelFromFd(operators_.get(), connection);
    return;
  }
  peer.tenant = identity_.TenantName(*wish, peer);
  if (!peer.tenant.ok()) return Refuse(connection, std::move(peer));
  Pass(connection, peer, nullptr);
}

void Supervisor::Pass(int connection, const Peer& peer, std::shared_ptr<TenantEndpoint> endpoint) {
  ClientConnection passed;
  passed.fd = connection;
  passed.tenant = *peer.tenant;
  passed.pid = peer.pid;
  passed.uid = peer.uid;
  passed.pid_namespace = peer.pid_namespace;
  passed.endpoint = std::move(endpoint);
  engines_->Pass(groups_.Of(peer, passed.tenant), passed);
}

bool Supervisor::NoteRefusal(DaemonEvent& refusal) {
  ConnectionHolder holder{false, refusal.uid};
  if (refusal.endpoint != 0) holder = {true, refusal.endpoint};
  std::optional<std::string> text = told_refusals_.Note(holder, refusal.text);
  if (text.has_value()) refusal.text = *std::move(text);
  return text.has_value();
}

void Supervisor::Refuse(int connection, Peer peer) {
  DaemonEvent event;
  event.kind = DaemonEvent::Kind::kRefused;
  event.pid = peer.pid;
  event.uid = peer.uid;
  if (peer.endpoint != nullptr) event.endpoint = peer.endpoint->number;
  event.text = std::string(peer.tenant.status().message());
  if (NoteRefusal(event)) {
    LogWarning("a session of pid ", peer.pid, " is refused: ", event.text);
    events_.Add(std::move(event));
  }
  peer.refused = true;
  peers_.Add(connection, std::move(peer));
  grpc::AddInsecureChannelFromFd(refused_.get(), connection);
}

absl::StatusOr<ReloadReport> Supervisor::Apply() {
  std::string text;
  DETSHARE_ASSIGN_OR_RETURN(const Config wanted, ReadAgain(startup_, &text));
  DETSHARE_RETURN_IF_ERROR(PrepareCopy(text));
  Daemon::Options options = daemon_;
  BackendOptions unused;
  ApplyConfig(wanted, &options, &unused);
  DETSHARE_ASSIGN_OR_RETURN(
      std::vector<std::string> settings,
      settings_.Replace(SettingsOf(options.server), options.server.default_quota));
  ReloadReport report = ReportOf(startup_.config, applied_, wanted, std::move(settings));
  ApplyLogLevel(wanted);
  identity_.SetRules(ResolveTenantRules(wanted));
  // The isolation itself changes at the next start.
  groups_.named = GroupsOf(wanted).named;
  if (observer_ != nullptr) observer_->SetMaxSessions(static_cast<size_t>(wanted.max_sessions));
  applied_ = wanted;
  LimitSessions();
  KeepSpares();
  UseCopy();
  engines_->Reload();
  return report;
}

void Supervisor::KeepSpares() {
  if (!has_gpus_.has_value()) return engines_->KeepSpares(0);
  const int64_t wanted = applied_.spare_engines;
  engines_->KeepSpares(wanted >= 0 ? static_cast<size_t>(wanted) : *has_gpus_ ? 1 : 0);
}

void Supervisor::LimitSessions() {
  engines_->SetLimits(LimitsOfSessions(applied_, settings_.current()));
}

absl::StatusOr<ReloadReport> Supervisor::Reload(const std::string& who) {
  startup_.service_manager.Reloading();
  absl::StatusOr<ReloadReport> report = Apply();
  events_.Add(LogReload(report, who));
  startup_.service_manager.Ready();
  return report;
}

bool Supervisor::HandleEvents() {
  const ServiceManager& service_manager = startup_.service_manager;
  const auto watchdog = std::chrono::duration_cast<milliseconds>(service_manager.watchdog() / 4);
  const int timeout = watchdog.count() == 0 ? -1 : static_cast<int>(watchdog.count()) + 1;
  for (;;) {
    pollfd fds[6] = {{startup_.signal_fd, POLLIN, 0},    {errands_.fd(), POLLIN, 0},
                     {arrivals_->fd(), POLLIN, 0},       {engines_->fd(), POLLIN, 0},
                     {endpoints_->save_fd(), POLLIN, 0}, {write_timer_.fd(), POLLIN, 0}};
    if (poll(fds, 6, timeout) < 0) continue;
    if (fds[4].revents != 0) endpoints_->SaveAgain();
    if (fds[5].revents != 0) WriteAgain();
    errands_.Proceed();
    arrivals_->Proceed();
    engines_->Proceed();
    service_manager.Alive();
    service_manager.Say(
        absl::StrCat("isolation by ", startup_.config.isolation, ", engines: ", engines_->size()));
    if (fds[0].revents == 0) continue;
    const SignalRequest request = TakeSignal(startup_);
    if (request == SignalRequest::kEnd || request == SignalRequest::kEndAll)
      return request == SignalRequest::kEndAll;
    if (request == SignalRequest::kReload) Reload("SIGHUP").IgnoreError();
  }
}

// A request may wait for an errand.
void Supervisor::EndServers() {
  std::atomic<bool> ended{false};  // relaxed: join() publishes the rest
  std::thread ending([&] {
    for (const auto& server : {operators_.get(), refused_.get()}) {
      server->Shutdown(std::chrono::system_clock::now() + milliseconds(500));
      server->Wait();
    }
    ended.store(true, std::memory_order_relaxed);
    errands_.Post([] {});
  });
  while (!ended.load(std::memory_order_relaxed)) {
    pollfd errand{errands_.fd(), POLLIN, 0};
    poll(&errand, 1, -1);
    errands_.Proceed();
  }
  ending.join();
}

void Supervisor::Finish(bool end_engines) {
  // The servers' end waits for the end of each request.
  calls_->Stop();
  watch_.reset();
  http_.reset();
  arrivals_->Leave(listen_fd_);
  endpoints_->StopAccepting();
  errands_.Proceed();
  size_t left = 0;
  if (!end_engines) {
    left = engines_->Release(kReleaseTimeout);
  } else if (!engines_->End(kEndTimeout + milliseconds(1000))) {
    // Each engine got the time to end by itself.
    LogWarning(engines_->size(), " engines are ended by force");
  }
  EndServers();
  if (!daemon_.keep_socket) unlink(daemon_.socket.c_str());
  if (left != 0) {
    LogInfo("engines that go on with their sessions: ", left);
    return;
  }
  unlink(SettingsFile(runtime_directory_).c_str());
  RemoveTree(EnginesDirectory(runtime_directory_));
}

}  // namespace

int ServeSupervisor(const Startup& startup) {
  Supervisor supervisor(startup);
  if (const absl::Status started = supervisor.Start(); !started.ok()) {
    LogError(std::string(started.message()));
    return 1;
  }
  LogInfo("detshared ", kVersion, " serves at ", startup.daemon.socket, ", isolation by ",
          startup.config.isolation);
  AnnounceReady(startup);
  // An engine's files are in the runtime directory.
  const bool end_engines = supervisor.HandleEvents() || startup.flags.remove_runtime_directory;
  LogInfo("detshared ends");
  startup.service_manager.Stopping();
  supervisor.Finish(end_engines);
  if (startup.flags.remove_runtime_directory) RemoveTree(startup.daemon.server.runtime_directory);
  return 0;
}

}  // namespace detshare
