#include "server/daemon_options.h"

#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "policy/config/accounts.h"
#include "policy/config/listen_address.h"
#include "proto/admin.pb.h"
#include "server/base/host_memory.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

constexpr int kMaxCoresWithoutSpinning = 4;
constexpr int kSpinUs = 50;
constexpr int kClientSpinUsOnGpu = 5000;
constexpr int kSlots = 256;
constexpr int kSlotsOnGpu = 64;  // programs on real GPUs pin and reserve more

}  // namespace

void ApplyConfig(const Config& config, Daemon::Options* daemon, BackendOptions* backend) {
  daemon->socket = config.socket;
  daemon->socket_mode = static_cast<mode_t>(std::strtoul(config.socket_mode.c_str(), nullptr, 8));
  daemon->tenant_rules = ResolveTenantRules(config);
  daemon->profile_directory = config.profile_dir;
  const char* const state = std::getenv("STATE_DIRECTORY");  // systemd.exec(5)
  if (config.profile_dir.empty() && state != nullptr && *state != '\0')
    daemon->profile_directory = std::string(state) + "/profiles";
  if (!config.metrics_listen.empty()) daemon->http = *ParseListenAddress(config.metrics_listen);
  daemon->http_mode =
      static_cast<unsigned>(std::strtoul(config.metrics_socket_mode.c_str(), nullptr, 8));
  daemon->http_token_file = config.metrics_token_file;
  daemon->dashboard = config.dashboard == "on";
  ServerOptions& server = daemon->server;
  server.runtime_directory = config.runtime_dir;
  server.policy = config.policy;
  server.policy_parameters = config.policy_parameters;
  server.placement = config.placement;
  server.tenants.clear();
  server.tenant_quotas.clear();
  for (const TenantConfig& tenant : config.tenants) {
    server.tenants.push_back(tenant.tenant);
    server.tenant_quotas[tenant.tenant.name] = tenant.quota;
  }
  server.default_quota = DefaultQuota(config);
  server.max_sessions = static_cast<uint32_t>(config.max_sessions);
  server.image_store_bytes = static_cast<uint64_t>(config.image_store_mib) << 20;
  server.swap_bytes =
      config.swap_memory >= 0 ? static_cast<uint64_t>(config.swap_memory) : HostMemoryBytes() / 2;
  ApplyLimits(config, &server.limits);
  server.windows.slots = static_cast<int>(config.session_slots);

  backend->backend = config.backend;
  backend->cuda_driver = config.cuda_driver;
  backend->cuda_sm_group = static_cast<int>(config.cuda_sm_group);
  // The engine of one tenant has as many connections as a program has natively. With more, each engine
  // that runs makes the start of the next one longer.
  if (ParseIsolation(config.isolation) == Isolation::kTenant)
    backend->cuda_connections = CudaOptions::kUsualConnections;
  backend->preemption = config.preemption == "auto";
  backend->soft_devices = static_cast<int>(config.soft_devices);
  backend->soft_sms = static_cast<int>(config.soft_sms);
  backend->soft_memory = static_cast<uint64_t>(config.soft_memory);
  backend->soft_cc = config.soft_cc;
  backend->soft_threads = static_cast<int>(config.soft_threads);
}

void ApplyLogLevel(const Config& config) {
  LogLevel level = LogLevel::kInfo;
  ParseLogLevel(config.log_level, &level);
  SetLogLevel(level);
}

TenantQuota DefaultQuota(const Config& config) {
  return {static_cast<uint64_t>(config.default_memory),
          static_cast<uint64_t>(config.default_pinned_memory),
          static_cast<uint64_t>(config.default_sessions),
          static_cast<uint64_t>(config.default_devices)};
}

SessionBook::Limits LimitsOfSessions(const Config& config, const proto::Settings& settings) {
  SessionBook::Limits limits;
  limits.all = static_cast<uint64_t>(config.max_sessions);
  limits.other_tenants = static_cast<uint64_t>(config.default_sessions);
  for (const proto::TenantSetting& tenant : settings.tenants())
    limits.tenants[tenant.name()] = tenant.sessions();
  return limits;
}

IsolationGroups GroupsOf(const Config& config) {
  IsolationGroups groups;
  groups.isolation = ParseIsolation(config.isolation);
  for (const TenantConfig& tenant : config.tenants) {
    if (!tenant.group.empty()) groups.named[tenant.tenant.name] = tenant.group;
  }
  return groups;
}

void ApplyLimits(const Config& config, SessionLimits* limits) {
  limits->contexts = static_cast<uint32_t>(config.contexts);
  limits->streams = static_cast<uint32_t>(config.streams);
  limits->events = static_cast<uint32_t>(config.events);
  limits->libraries = static_cast<uint32_t>(config.libraries);
  limits->kernels = static_cast<uint32_t>(config.kernels);
  limits->arrays = static_cast<uint32_t>(config.arrays);
  limits->image_objects = static_cast<uint32_t>(config.textures);
  limits->graphs = static_cast<uint32_t>(config.graphs);
  limits->image_bytes = static_cast<uint64_t>(config.code_mib) << 20;
  limits->graph_bytes = static_cast<uint64_t>(config.graph_mib) << 20;
}

void ApplyConfigOfBackend(const Config& config, const std::string& backend, ServerOptions* server) {
  const bool real = backend == "cuda";
  const bool spin = std::thread::hardware_concurrency() > kMaxCoresWithoutSpinning;
  const int client_spin = real ? kClientSpinUsOnGpu : kSpinUs;
  server->spin_us = config.spin_us >= 0 ? static_cast<int>(config.spin_us) : spin ? kSpinUs : 0;
  server->client_spin_us = config.client_spin_us >= 0 ? static_cast<int>(config.client_spin_us)
                           : spin                     ? client_spin
                                                      : 0;
  if (config.session_slots == 0) server->windows.slots = real ? kSlotsOnGpu : kSlots;
  const uint64_t staging_mib = config.staging_mib > 0 ? config.staging_mib : real ? 64 : 16;
  server->region.staging_bytes = staging_mib << 20;
}

TenantRules ResolveTenantRules(const Config& config) {
  TenantRules rules;
  rules.unlisted = config.unlisted_tenants == "allow";
  if (const std::optional<uint32_t> id = GroupId(config.admin_group)) {
    rules.admins.push_back(*id);
  } else if (config.admin_group != Config().admin_group) {
    LogWarning("admin_group: there is no group ", config.admin_group);
  }
  for (const TenantConfig& tenant : config.tenants) {
    TenantRules::Rule& rule = rules.rules.emplace_back();
    rule.tenant = tenant.tenant.name;
    rule.restricted = !tenant.users.empty() || !tenant.groups.empty();
    for (const std::string& name : tenant.users) {
      if (const std::optional<uint32_t> id = UserId(name)) {
        rule.users.push_back(*id);
      } else {
        LogWarning("tenant ", rule.tenant, ": there is no user ", name);
      }
    }
    for (const std::string& name : tenant.groups) {
      if (const std::optional<uint32_t> id = GroupId(name)) {
        rule.groups.push_back(*id);
      } else {
        LogWarning("tenant ", rule.tenant, ": there is no group ", name);
      }
    }
  }
  return rules;
}

}  // namespace detshare
