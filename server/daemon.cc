#include "server/daemon.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <linux/magic.h>
#include <sys/vfs.h>
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
#include "proto/quiet_grpc.h"
#include "server/base/grpc_limits.h"
#include "server/base/logging.h"
#include "server/directories.h"
#include "server/services/admin_service.h"
#include "server/services/control_service.h"
#include "server/services/duration_profiles.h"
#include "server/services/other_domains.h"
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
constexpr milliseconds kOthersTimeout(2000);  // for replies of other domains
// Settings of an earlier daemon may name more devices than there are: a card may be missing.
constexpr size_t kAnyNumberOfDevices = std::numeric_limits<size_t>::max();
constexpr const char* kServices[] = {"detshare.proto.Admin", "detshare.proto.Control",
                                     "detshare.proto.TenantEndpoints", "detshare.proto.Telemetry"};

bool OnTmpfs(const std::string& directory) {
  struct statfs file_system;
  return statfs(directory.c_str(), &file_system) == 0 && file_system.f_type == TMPFS_MAGIC;
}

int LargestSmCount(const std::vector<Device*>& devices) {
  int largest = 0;
  for (const Device* device : devices) largest = std::max(largest, device->properties().sm_count);
  return largest;
}

std::string SettingsFile(const ServerOptions& options) {
  return options.runtime_directory + "/settings";
}

proto::Settings FlagsAsSettings(const ServerOptions& options) {
  proto::Settings settings;
  settings.mutable_policy()->set_name(options.policy);
  for (const auto& [name, value] : options.policy_parameters)
    (*settings.mutable_policy()->mutable_parameters())[name] = value;
  for (const policy::Tenant& tenant : options.tenants) {
    const auto quota = options.tenant_quotas.find(tenant.name);
    *settings.add_tenants() =
        ToSetting(tenant, quota != options.tenant_quotas.end() ? quota->second : TenantQuota());
  }
  return settings;
}

// A daemon that replaces another one takes over its settings. Any other daemon begins with its
// flags.
void AdoptSettings(int sm_count, ServerOptions* options) {
  const std::string file = SettingsFile(*options);
  if (options->first_session <= 1) {
    unlink(file.c_str());
    return;
  }
  const absl::StatusOr<proto::Settings> kept = ReadSettings(file);
  if (absl::IsNotFound(kept.status())) return;
  std::vector<policy::Tenant> tenants;
  std::map<std::string, TenantQuota> quotas;
  absl::Status sound = kept.status();
  if (sound.ok()) {
    for (const proto::TenantSetting& setting : kept->tenants()) {
      absl::StatusOr<policy::Tenant> tenant = ToTenant(setting, sm_count);
      if (!tenant.ok()) sound = tenant.status();
      if (tenant.ok()) tenants.push_back(*std::move(tenant));
      const absl::StatusOr<TenantQuota> quota = ToQuota(setting, kAnyNumberOfDevices);
      if (!quota.ok()) sound = quota.status();
      if (quota.ok()) quotas[setting.name()] = *quota;
    }
  }
  if (!sound.ok()) {
    LogWarning("the earlier daemon's settings are not used: ", std::string(sound.message()));
    return;
  }
  options->policy = kept->policy().name();
  options->policy_parameters = {kept->policy().parameters().begin(),
                                kept->policy().parameters().end()};
  options->tenants = std::move(tenants);
  options->tenant_quotas = std::move(quotas);
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
  if (options_.backend == "cuda" && !OnTmpfs(runtime_directory)) {
    LogWarning(runtime_directory,
               " is not on a tmpfs: GPUs may not reach files there, and sessions would be refused. "
               "Name another folder "
               "with --runtime-dir, for example /dev/shm/detshare");
  }
  return absl::OkStatus();
}

absl::Status Daemon::CreateManager() {
  std::vector<Device*> borrowed;
  for (const auto& device : devices_) borrowed.push_back(device.get());
  const int sm_count = LargestSmCount(borrowed);
  AdoptSettings(sm_count, &options_.server);
  WarnOfDevices(options_.server, borrowed.size());
  DETSHARE_ASSIGN_OR_RETURN(manager_, SessionManager::Create(borrowed, options_.server));
  manager_->SetAdmission(options_.admission);
  const std::vector<DeviceScheduler*> schedulers = manager_->Schedulers();
  if (!options_.profile_directory.empty()) {
    std::vector<DurationProfiles::Entry> tables;
    for (size_t i = 0; i < schedulers.size(); ++i)
      tables.push_back({borrowed[i], &schedulers[i]->durations()});
    profiles_ = std::make_unique<DurationProfiles>(options_.profile_directory, std::move(tables));
  }
  settings_ = std::make_unique<SettingsStore>(schedulers, manager_->tenant_accounts(), sm_count,
                                              FlagsAsSettings(options_.server),
                                              SettingsFile(options_.server));
  return absl::OkStatus();
}

absl::Status Daemon::CreateServices() {
  identity_.SetRules(options_.tenant_rules);
  control_ = std::make_unique<ControlService>(*manager_, peers_, identity_,
                                              options_.directory_for_clients);
  if (options_.domain.has_value()) {
    others_ = std::make_unique<OtherDomains>(options_.server.runtime_directory, kOthersTimeout);
  }
  admin_ = std::make_unique<AdminService>(*manager_, *settings_, identity_, peers_,
                                          options_.backend, options_.domain, others_.get());
  telemetry_ = std::make_unique<Telemetry>(*manager_, options_.host_telemetry, identity_);
  telemetry_service_ = std::make_unique<TelemetryService>(*telemetry_, peers_);
  DETSHARE_ASSIGN_OR_RETURN(
      endpoints_, TenantEndpoints::Create(*manager_, *settings_, *telemetry_, peers_, identity_,
                                          options_.domain.has_value()));
  endpoint_service_ = std::make_unique<TenantEndpointService>(*endpoints_, peers_, identity_);
  if (options_.observe || options_.http.has_value()) {
    Observer::Options watched;
    watched.backend = options_.backend;
    watched.device_losses = options_.device_losses;
    watched.dashboard = options_.dashboard;
    observer_ = std::make_unique<Observer>(*manager_, *settings_, watched);
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
  builder.RegisterService(endpoint_service_.get());
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
  acceptor_ = std::make_unique<Acceptor>(listen_fd_, peers_, [server = grpc_.get()](int fd) {
    grpc::AddInsecureChannelFromFd(server, fd);
  });
  return absl::OkStatus();
}

Daemon::~Daemon() { Stop(std::chrono::hours(24)); }

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
  others_.reset();
  observer_.reset();
  if (endpoints_ != nullptr) endpoints_->Shutdown();
  if (listen_fd_ >= 0) {
    if (!options_.keep_socket) unlink(options_.socket.c_str());
    close(listen_fd_);
    listen_fd_ = -1;
  }
  return empty;
}

void Daemon::Take(int connection) { acceptor_->Take(connection); }

bool Daemon::InUse() { return peers_.AnyConnected(getppid()) || !manager_->Sessions().empty(); }

void Daemon::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = grpc_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(serving);
  for (const char* service : kServices) health->SetServingStatus(service, serving);
}

absl::Status Daemon::ServeHttp() {
  if (!options_.http.has_value()) return absl::OkStatus();
  DETSHARE_ASSIGN_OR_RETURN(http_,
                            ServePages(*options_.http, options_.http_mode, options_.dashboard,
                                       [observer = observer_.get()](const HttpRequest& request) {
                                         return observer->Respond(request);
                                       }));
  return absl::OkStatus();
}

void Daemon::Monitor() {
  while (manager_->activity().Await(kHealthPeriod)) {
    const absl::Status health = manager_->DeviceHealth();
    if (!health.ok()) {
      SetServing(false);
      LogError("the device is lost: ", std::string(health.message()),
               "; every session ends with CUDA error ", CudaResultOf(health));
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
