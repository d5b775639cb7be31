#include "server/daemon.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/durations.h"
#include "coroutine_runtime/host_telemetry.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "proto/admin.pb.h"
#include "proto/driver_api/error_names.h"
#include "proto/quiet_grpc.h"
#include "server/base/grpc_limits.h"
#include "server/base/logging.h"
#include "server/services/admin_service.h"
#include "server/services/client_server.h"
#include "server/services/control_service.h"
#include "server/services/duration_profiles.h"
#include "server/services/reflection_service.h"
#include "server/services/settings_store.h"
#include "server/services/telemetry_service.h"
#include "server/services/tenant_endpoints.h"
#include "server/sessions/session_manager.h"
#include "server/telemetry/telemetry.h"
#include "server/web/http_server.h"
#include "server/web/observation_service.h"
#include "server/web/observer.h"
#include "server/web/serve_pages.h"

namespace detshare {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHealthPeriod(20);
// Settings of an earlier daemon may name more devices than there are: a card may be missing.
constexpr size_t kAnyNumberOfDevices = std::numeric_limits<size_t>::max();
constexpr const char* kServices[] = {"detshare.proto.Admin", "detshare.proto.Control",
                                     "detshare.proto.TenantEndpoints", "detshare.proto.Telemetry"};

int LargestSmCount(const std::vector<Device*>& devices) {
  int largest = 0;
  for (const Device* device : devices) largest = std::max(largest, device->properties().sm_count);
  return largest;
}

// A daemon that replaces another one takes over its settings, and an engine those of the supervisor.
// Any other daemon begins with its flags. Settings that do not fit the devices are made to fit, so that
// they cost no tenant its limits. Returns an error if the supervisor's settings cannot be read:
// without them an engine has no limits.
absl::Status AdoptSettings(const Daemon::Options& daemon, int sm_count, size_t device_count,
                           ServerOptions* options) {
  std::string file = daemon.inherited_settings;
  if (file.empty()) {
    file = SettingsFile(options->runtime_directory);
    if (options->first_session <= 1) {
      unlink(file.c_str());
      return absl::OkStatus();
    }
  }
  const bool of_supervisor = !daemon.inherited_settings.empty();
  absl::StatusOr<proto::Settings> kept = ReadSettings(file);
  if (!kept.ok() && of_supervisor) return kept.status();
  if (absl::IsNotFound(kept.status())) return absl::OkStatus();
  if (!kept.ok()) {
    LogWarning("the earlier daemon's settings are not used: ",
               std::string(kept.status().message()));
    return absl::OkStatus();
  }
  // The daemon that comes after this one may have the missing card again.
  const size_t most_devices = of_supervisor ? device_count : kAnyNumberOfDevices;
  for (const std::string& line : FitSettings(sm_count, most_devices, &*kept)) LogWarning(line);
  std::vector<policy::Tenant> tenants;
  std::map<std::string, TenantQuota> quotas;
  for (const proto::TenantSetting& setting : kept->tenants()) {
    DETSHARE_ASSIGN_OR_RETURN(policy::Tenant tenant, ToTenant(setting, sm_count));
    tenants.push_back(std::move(tenant));
    DETSHARE_ASSIGN_OR_RETURN(quotas[setting.name()], ToQuota(setting, most_devices));
  }
  options->policy = kept->policy().name();
  options->policy_parameters = {kept->policy().parameters().begin(),
                                kept->policy().parameters().end()};
  options->tenants = std::move(tenants);
  options->tenant_quotas = std::move(quotas);
  return absl::OkStatus();
}

void WarnOfDevices(const ServerOptions& options, size_t device_count) {
  for (const auto& [tenant, quota] : options.tenant_quotas) {
    if (quota.devices > device_count) {
      LogWarning("tenant ", tenant, ": programs may have ", quota.devices,
                 " devices each; this host has ", device_count, ", and they get all of them");
    }
  }
}

}  // namespace

Daemon::Daemon(std::vector<std::unique_ptr<Device>> devices, Options options)
    : options_(std::move(options)), devices_(std::move(devices)) {}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(std::vector<std::unique_ptr<Device>> devices,
                                                      Options options) {
  StartQuietGrpc();
  options.server.runtime_directory =
      RuntimeDirectory(options.server.runtime_directory, options.socket);
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(devices), std::move(options)));
  DETSHARE_RETURN_IF_ERROR(daemon->TakeDirectories());
  DETSHARE_RETURN_IF_ERROR(daemon->CreateManager());
  DETSHARE_RETURN_IF_ERROR(daemon->CreateServices());
  DETSHARE_RETURN_IF_ERROR(daemon->StartGrpc());
  DETSHARE_RETURN_IF_ERROR(daemon->Listen());
  DETSHARE_RETURN_IF_ERROR(daemon->ServeHttp());
  const Options& opts = daemon->options_;
  DaemonEvent begun;
  begun.kind = DaemonEvent::Kind::kStarted;
  begun.pid = getpid();
  begun.uid = geteuid();
  begun.text = absl::StrCat("backend ", opts.backend, ", policy ", opts.server.policy);
  daemon->manager_->events().Add(std::move(begun));
  Daemon* const self = daemon.get();
  daemon->monitor_ = std::thread([self] { self->Monitor(); });
  return daemon;
}

absl::Status Daemon::TakeDirectories() {
  const std::string& runtime_directory = options_.server.runtime_directory;
  MakeDirectories(options_.socket, runtime_directory);
  DETSHARE_RETURN_IF_ERROR(LockSocket(options_.socket));
  DETSHARE_RETURN_IF_ERROR(runtime_lock_.Take(runtime_directory));
  if (options_.backend == "cuda") WarnUnlessOnTmpfs(runtime_directory);
  return absl::OkStatus();
}

absl::Status Daemon::CreateManager() {
  std::vector<Device*> borrowed;
  for (const auto& device : devices_) borrowed.push_back(device.get());
  const int sm_count = LargestSmCount(borrowed);
  DETSHARE_RETURN_IF_ERROR(AdoptSettings(options_, sm_count, borrowed.size(), &options_.server));
  WarnOfDevices(options_.server, borrowed.size());
  DETSHARE_ASSIGN_OR_RETURN(manager_, SessionManager::Create(borrowed, options_.server));
  manager_->SetAdmission(options_.admission);
  manager_->OnEndedWork(options_.ended_work);
  if (options_.note) manager_->events().Forward(options_.note);
  manager_->events().KnowOwners([this](uint64_t endpoint) { return owners_.OfNumber(endpoint); });
  const std::vector<DeviceScheduler*> schedulers = manager_->Schedulers();
  if (!options_.profile_directory.empty()) {
    std::vector<DurationProfiles::Entry> tables;
    for (size_t i = 0; i < schedulers.size(); ++i)
      tables.push_back({borrowed[i], &schedulers[i]->durations()});
    profiles_ = std::make_unique<DurationProfiles>(options_.profile_directory, std::move(tables));
  }
  settings_ = std::make_unique<SettingsStore>(schedulers, manager_->tenant_accounts(), sm_count,
                                              SettingsOf(options_.server),
                                              SettingsFile(options_.server.runtime_directory));
  return absl::OkStatus();
}

absl::Status Daemon::CreateServices() {
  identity_.SetRules(options_.tenant_rules);
  control_ = std::make_unique<ControlService>(*manager_, peers_, options_.directory_for_clients,
                                              options_.group.value_or(""));
  admin_ = std::make_unique<AdminService>(*manager_, *settings_, owners_, identity_, peers_,
                                          options_.backend, options_.socket, options_.group);
  telemetry_ = std::make_unique<Telemetry>(*manager_, options_.host_telemetry);
  telemetry_service_ = std::make_unique<TelemetryService>(*telemetry_, peers_);
  DETSHARE_ASSIGN_OR_RETURN(
      clients_, ClientServer::Create(*manager_, *settings_, *telemetry_, peers_, identity_,
                                     options_.group.value_or("")));
  // Endpoints belong to the process that listens.
  if (!options_.group.has_value()) {
    DETSHARE_ASSIGN_OR_RETURN(
        endpoints_, TenantEndpoints::Create(options_.server.runtime_directory, *clients_, owners_));
    endpoint_service_ =
        std::make_unique<TenantEndpointService>(*endpoints_, manager_->events(), peers_, identity_);
  }
  if (options_.observe || options_.http.has_value()) {
    Observer::Options watched;
    watched.backend = options_.backend;
    watched.device_losses = options_.device_losses;
    watched.dashboard = options_.dashboard;
    observer_ = std::make_unique<Observer>(*manager_, *settings_, owners_, watched);
  }
  if (options_.observe)
    observation_ = std::make_unique<ObservationService>(*observer_, peers_, identity_);
  return absl::OkStatus();
}

absl::Status Daemon::StartGrpc() {
  grpc::EnableDefaultHealthCheckService(true);  // gRPC implements grpc.health.v1
  std::vector<std::string> names(std::begin(kServices), std::end(kServices));
  names.emplace_back("grpc.health.v1.Health");
  names.emplace_back("grpc.reflection.v1alpha.ServerReflection");
  reflection_ = std::make_unique<ReflectionService>(std::move(names));
  grpc::ServerBuilder builder;
  builder.RegisterService(control_.get());
  builder.RegisterService(admin_.get());
  builder.RegisterService(telemetry_service_.get());
  if (endpoint_service_ != nullptr) builder.RegisterService(endpoint_service_.get());
  builder.RegisterService(reflection_.get());
  if (observation_ != nullptr) builder.RegisterService(observation_.get());
  SetLimits(&builder);
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) return absl::InternalError("gRPC does not start");
  SetServing(true);
  return absl::OkStatus();
}

absl::Status Daemon::Listen() {
  if (options_.listen_fd >= 0) {
    listen_fd_ = options_.listen_fd;
  } else {
    DETSHARE_ASSIGN_OR_RETURN(listen_fd_, ListenOn(options_.socket, options_.socket_mode));
  }
  acceptor_ = std::make_unique<Acceptor>(
      listen_fd_, peers_, identity_,
      [server = grpc_.get()](int fd) { grpc::AddInsecureChannelFromFd(server, fd); });
  return absl::OkStatus();
}

Daemon::~Daemon() { Stop(std::chrono::hours(24)); }

int Daemon::save_fd() const { return endpoints_ != nullptr ? endpoints_->save_fd() : -1; }

void Daemon::SaveAgain() {
  if (endpoints_ != nullptr) endpoints_->SaveAgain();
}

bool Daemon::Stop(milliseconds timeout) {
  if (grpc_ != nullptr) SetServing(false);
  if (manager_ != nullptr) manager_->activity().Stop();
  if (monitor_.joinable()) monitor_.join();
  acceptor_.reset();
  if (endpoints_ != nullptr) endpoints_->StopAccepting();
  http_.reset();
  bool empty = true;
  if (manager_ != nullptr) {
    manager_->EndAll(kCudaErrorSystemNotReady, "the daemon ends", milliseconds(1000));
    empty = manager_->WaitUntilEmpty(timeout);
  }
  if (grpc_ != nullptr) {
    grpc_->Shutdown(std::chrono::system_clock::now() + milliseconds(500));
    grpc_->Wait();
    grpc_.reset();
  }
  observer_.reset();
  if (clients_ != nullptr) clients_->Shutdown();
  if (listen_fd_ >= 0) {
    if (!options_.keep_socket) unlink(options_.socket.c_str());
    close(listen_fd_);
    listen_fd_ = -1;
  }
  return empty;
}

void Daemon::Take(const ClientConnection& connection) {
  if (connection.fd < 0) return;
  std::optional<Peer> peer = ReadPeer(connection.fd);
  if (!peer.has_value()) {
    close(connection.fd);
    return;
  }
  peer->passed = true;
  peer->pid_namespace = connection.pid_namespace;
  peer->ticket = connection.ticket;
  peer->tenant = connection.tenant;
  const bool through_endpoint = connection.endpoint != nullptr;
  if (through_endpoint) {
    absl::StatusOr<std::shared_ptr<TenantEndpoint>> endpoint = Know(connection.endpoint);
    if (!endpoint.ok()) peer->tenant = endpoint.status();
    // The connection counts for the endpoint also if its program is refused.
    peer->endpoint = endpoint.ok() ? *std::move(endpoint) : connection.endpoint;
  }
  peer->refused = !peer->tenant.ok();
  peers_.Add(connection.fd, *std::move(peer));
  if (through_endpoint) return clients_->Serve(connection.fd);
  grpc::AddInsecureChannelFromFd(grpc_.get(), connection.fd);
}

absl::StatusOr<std::shared_ptr<TenantEndpoint>> Daemon::Know(
    const std::shared_ptr<TenantEndpoint>& passed) {
  const auto known = passed_endpoints_.find(passed->number);
  if (known != passed_endpoints_.end()) return known->second;
  DETSHARE_ASSIGN_OR_RETURN(passed->device_ids, clients_->DevicesOf(passed->device_ids));
  if (options_.used) {
    passed->use.Forward([used = options_.used, number = passed->number](const auto& figures) {
      return used(number, figures);
    });
  }
  passed_endpoints_[passed->number] = passed;
  return passed;
}

void Daemon::CloseEndpoint(uint64_t number) {
  const auto known = passed_endpoints_.find(number);
  if (known == passed_endpoints_.end()) return;
  // Before End() looks for open sessions, so a session that is requested later is refused.
  known->second->closed.store(true, std::memory_order_seq_cst);
  clients_->End(*known->second);
  passed_endpoints_.erase(known);
}

bool Daemon::InUse() {
  return peers_.AnyConnected(options_.observer ? options_.observer() : -1) ||
         !manager_->Sessions().empty();
}

void Daemon::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = grpc_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(serving);
  for (const char* service : kServices) health->SetServingStatus(service, serving);
}

absl::Status Daemon::ServeHttp() {
  if (!options_.http.has_value()) return absl::OkStatus();
  DETSHARE_ASSIGN_OR_RETURN(
      http_,
      ServePages({*options_.http, options_.http_mode, options_.http_token_file, options_.dashboard},
                 [observer = observer_.get()](const HttpRequest& request) {
                   return observer->Respond(request);
                 }));
  return absl::OkStatus();
}

void Daemon::Monitor() {
  while (manager_->activity().Await(kHealthPeriod)) {
    manager_->WatchEndedWork();
    manager_->PublishLoads();
    const absl::Status health = manager_->DeviceHealth();
    if (!health.ok()) {
      SetServing(false);
      LogError("the device is lost: ", std::string(health.message()), "; every session ends with ",
               ErrorText(CudaResultOf(health)));
      DaemonEvent lost;
      lost.kind = DaemonEvent::Kind::kDeviceLost;
      lost.text = std::string(health.message());
      manager_->events().Add(std::move(lost));
      manager_->EndAll(CudaResultOf(health),
                       absl::StrCat("the device is lost: ", std::string(health.message())),
                       milliseconds(1000));
      if (options_.device_lost) options_.device_lost();
      return;
    }
  }
}

}  // namespace detshare
