#include "server/services/admin_service.h"

#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/sched_entity.h"
#include "policy/status_macros.h"
#include "proto/version.h"
#include "server/base/grpc_status.h"
#include "server/base/logging.h"
#include "server/base/printable.h"
#include "server/services/admin_common.h"
#include "server/services/device_status.h"

namespace detshare {
namespace {

void Describe(const CoroutineState& state, policy::Nanoseconds now, proto::Schedule* schedule) {
  const SchedEntityReport& figures = state.figures;
  schedule->set_tenant_class(NameOf(state.tenant.tenant_class));
  schedule->set_followed(state.followed);
  if (!state.followed) return;
  schedule->set_rank(figures.rank);
  schedule->set_has_work(figures.has_work);
  schedule->set_in_flight_ns(figures.in_flight);
  schedule->set_throttled_ns(figures.throttled_since == 0
                                 ? 0
                                 : std::max<policy::Nanoseconds>(1, now - figures.throttled_since));
  schedule->set_throttled_by_window_ns(figures.throttled_by_window);
  schedule->set_throttled_by_budget_ns(figures.throttled_by_budget);
  schedule->set_device_time_ns(figures.device_time);
  schedule->set_operations(figures.operations);
  schedule->set_passes(figures.passes);
  schedule->set_memory_bound(figures.memory_bound);
  schedule->set_tokens(figures.tokens.tokens);
  schedule->set_tpot_ns(figures.tokens.recent_tpot);
  schedule->set_prefill(figures.tokens.prefill);
  schedule->set_typical_burst_ns(figures.typical_burst);
  schedule->set_typical_operation_ns(figures.typical_operation);
  schedule->set_longest_operation_ns(figures.longest_operation);
  int used = LatencyHistogram::kBuckets;
  while (used > 0 && state.bursts[used - 1] == 0) --used;
  schedule->mutable_bursts()->Add(state.bursts.begin(), state.bursts.begin() + used);
}

void Describe(const FetchedTrace& fetched, proto::SessionTrace* trace) {
  constexpr proto::TracedEvent::Kind kKinds[] = {
      proto::TracedEvent::OPERATION, proto::TracedEvent::MIGRATION, proto::TracedEvent::THROTTLED,
      proto::TracedEvent::WAIT, proto::TracedEvent::COLLECTION};
  trace->set_lost(fetched.lost);
  for (const auto& [number, name] : fetched.names) (*trace->mutable_names())[number] = name;
  for (const TraceEvent& event : fetched.events) {
    proto::TracedEvent* const one = trace->add_events();
    one->set_kind(kKinds[static_cast<size_t>(event.kind)]);
    one->set_at_ns(event.at);
    one->set_duration_ns(event.duration);
    one->set_submitted_ns(event.submitted);
    one->set_stream(event.stream);
    one->set_name(event.name);
    one->set_first_sm(event.first_sm);
    one->set_sm_count(event.sm_count);
    one->set_urgent(event.urgent);
    if (event.kind == TraceEvent::Kind::kMigration) {
      if (event.cause == TraceEvent::kPreempts) one->set_cause("preempts");
      if (event.cause == TraceEvent::kBackToOrdinary) one->set_cause("back to ordinary");
    }
    if (event.kind == TraceEvent::Kind::kThrottled) {
      one->set_cause(event.cause == static_cast<uint8_t>(SchedEntity::Cause::kBudget) ? "budget"
                                                                                      : "window");
    }
  }
}

}  // namespace

AdminService::AdminService(SessionManager& manager, SettingsStore& settings, const Owners& owners,
                           const Identity& identity, PeerTable& peers, std::string backend,
                           std::string socket, std::optional<std::string> group)
    : manager_(manager),
      settings_(settings),
      owners_(owners),
      identity_(identity),
      peers_(peers),
      backend_(std::move(backend)),
      socket_(std::move(socket)),
      group_(std::move(group)),
      begin_(std::chrono::steady_clock::now()),
      trace_([this] { StopTraces(); }, TraceLease::kTimeout) {}

void AdminService::DescribeSelf(proto::Status* status) {
  status->set_version(kVersion);
  status->set_abi_version(kAbiVersion);
  status->set_uptime_ms(std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now() - begin_)
                            .count());
  status->set_pid(getpid());
  status->set_backend(backend_);
  status->set_policy(TextOf(settings_.current().policy()));
  status->set_swap_limit(manager_.host_store().limit());
  status->set_swap_used(manager_.host_store().used());
  for (size_t i = 0; i < manager_.devices().size(); ++i) {
    Device* const device = manager_.devices()[i];
    proto::DeviceStatus* const one = status->add_devices();
    DescribeDevice(*device, one);
    one->set_beside_native(manager_.Schedulers()[i]->BesideNative());
    for (const PartitionView& partition : manager_.Partitions(i)) {
      proto::PartitionStatus* const part = one->add_partitions();
      part->set_name(partition.name);
      part->set_first_sm(partition.first_sm);
      part->set_sm_count(partition.sm_count);
      part->set_sessions(static_cast<uint32_t>(partition.sessions));
    }
  }
  for (const SessionManager::SessionInfo& info : manager_.Sessions()) {
    proto::SessionStatus* const one = status->add_sessions();
    one->set_session(info.id);
    one->set_tenant(info.request.tenant);
    if (info.request.endpoint != nullptr) one->set_endpoint(info.request.endpoint->name);
    one->set_pid(info.request.pid);
    one->set_uid(info.request.owner.uid);
    one->set_program(info.request.program);
    one->set_age_ms(info.age_ms);
    one->set_device_memory(info.counters.device_memory);
    one->set_pinned_memory(info.counters.pinned_memory);
    one->set_operations(info.counters.operations);
    one->set_kernels(info.counters.kernels);
    one->set_bytes_copied(info.counters.bytes_copied);
    one->set_partition(info.schedule.partition);
    one->set_bound(info.schedule.bound);
    one->set_state(info.state);
    one->set_code_bytes(info.counters.code_bytes);
    one->set_migrations(info.counters.migrations);
    for (const auto& place : info.places) one->add_devices(static_cast<uint32_t>(place.first));
    Describe(info.schedule, RealClock().NowNanoseconds(), one->mutable_schedule());
    const SwapCounters& swap = info.counters.swap;
    one->mutable_swap()->set_out(swap.out);
    one->mutable_swap()->set_bytes_out(swap.bytes_out);
    one->mutable_swap()->set_bytes_in(swap.bytes_in);
    one->mutable_swap()->set_moves(swap.moves);
    one->mutable_swap()->set_time_us(swap.nanoseconds / 1000);
  }
  proto::EngineStatus* const engine = status->add_engines();
  engine->set_group(group_.value_or(""));
  engine->set_pid(getpid());
  engine->set_version(kVersion);
  for (int i = 0; i < status->devices_size(); ++i) engine->add_devices(static_cast<uint32_t>(i));
  engine->set_sessions(static_cast<uint32_t>(status->sessions_size()));
  for (const proto::SessionStatus& session : status->sessions())
    engine->set_device_memory(engine->device_memory() + session.device_memory());
  engine->set_socket(socket_);
  for (const std::shared_ptr<TenantAccount>& account : manager_.tenant_accounts().All()) {
    proto::TenantUse* const tenant = status->add_tenants();
    const TenantQuota limits = account->limits();
    tenant->set_name(account->tenant());
    tenant->set_memory_limit(limits.memory);
    for (size_t i = 0; i < manager_.devices().size(); ++i)
      tenant->add_memory_used(account->memory_used(i));
    tenant->set_pinned_limit(limits.pinned_memory);
    tenant->set_pinned_used(account->pinned_used());
    tenant->set_sessions_limit(limits.sessions);
    tenant->set_sessions_used(account->sessions_used());
    tenant->set_refusals(account->refusals());
    tenant->set_devices_limit(limits.devices);
  }
  AddOwners(owners_, status);
}

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* context,
                                                  const proto::GetStatusRequest*,
                                                  proto::Status* status) {
  DescribeSelf(status);
  return FinishUnary(context, absl::OkStatus());
}

absl::StatusOr<Peer> AdminService::MayAdminister(grpc::CallbackServerContext* context) const {
  DETSHARE_ASSIGN_OR_RETURN(Peer peer, peers_.Find(context->peer()));
  DETSHARE_RETURN_IF_ERROR(identity_.MayAdminister(peer));
  return peer;
}

grpc::ServerUnaryReactor* AdminService::GetPolicies(grpc::CallbackServerContext* context,
                                                    const proto::GetPoliciesRequest*,
                                                    proto::Policies* policies) {
  DescribePolicies(settings_.current().policy(), policies);
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::GetTenants(grpc::CallbackServerContext* context,
                                                   const proto::GetTenantsRequest*,
                                                   proto::Tenants* tenants) {
  *tenants->mutable_tenants() = settings_.current().tenants();
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::SetPolicy(grpc::CallbackServerContext* context,
                                                  const proto::PolicySetting* setting,
                                                  proto::PolicySetting* in_force) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status allowed = MaySetPolicy(*setting, *peer); !allowed.ok())
    return FinishUnary(context, allowed);
  if (absl::Status set = settings_.SetPolicy(*setting); !set.ok()) return FinishUnary(context, set);
  *in_force = settings_.current().policy();
  LogInfo("policy ", TextOf(*setting), " is in force (", Who(*peer), ")");
  manager_.events().Add(EventBy(*peer, DaemonEvent::Kind::kPolicy, "", TextOf(*setting)));
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::SetTenant(grpc::CallbackServerContext* context,
                                                  const proto::TenantSetting* setting,
                                                  proto::TenantSetting* in_force) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  absl::StatusOr<proto::TenantSetting> result = settings_.SetTenant(*setting);
  if (!result.ok()) return FinishUnary(context, result.status());
  *in_force = *std::move(result);
  LogInfo("settings of tenant ", in_force->name(), ": ", ChangeText(*in_force), " (", Who(*peer),
          ")");
  manager_.events().Add(
      EventBy(*peer, DaemonEvent::Kind::kTenant, in_force->name(), ChangeText(*setting)));
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::UnsetTenant(grpc::CallbackServerContext* context,
                                                    const proto::UnsetTenantRequest* request,
                                                    proto::Tenants* in_force) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status unset = settings_.UnsetTenant(request->name()); !unset.ok())
    return FinishUnary(context, unset);
  AddTenant(settings_.current(), request->name(), in_force);
  LogInfo("tenant ", request->name(), " has the configuration's settings (", Who(*peer), ")");
  manager_.events().Add(
      EventBy(*peer, DaemonEvent::Kind::kTenant, request->name(), "the configuration's settings"));
  return FinishUnary(context, absl::OkStatus());
}

absl::StatusOr<std::vector<uint64_t>> AdminService::EndHere(
    const proto::EndSessionsRequest& request, const Peer& peer, const std::string& who) {
  const bool any = identity_.MayAdminister(peer).ok();
  const std::set<uint64_t> wanted(request.sessions().begin(), request.sessions().end());
  // Ends all of them or none.
  for (const uint64_t id : wanted) {
    if (manager_.Find(id) == nullptr)
      return absl::NotFoundError(absl::StrCat("there is no session ", id));
  }
  absl::StatusOr<std::vector<uint64_t>> done = manager_.EndSome(
      [&](uint64_t id, const SessionRequest& session) {
        return wanted.empty() ? session.tenant == request.tenant() : wanted.contains(id);
      },
      [&](const SessionRequest& session) {
        // Users inside containers are not those of the host.
        return any || (session.owner.uid == peer.uid && session.endpoint == peer.endpoint);
      },
      who);
  if (absl::IsNotFound(done.status()) && wanted.empty()) {
    return absl::NotFoundError(
        absl::StrCat("tenant ", Printable(request.tenant(), kMaxOfAName), " has no session"));
  }
  return done;
}

grpc::ServerUnaryReactor* AdminService::EndSessions(grpc::CallbackServerContext* context,
                                                    const proto::EndSessionsRequest* request,
                                                    proto::EndedSessions* ended) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status valid = CheckEndRequest(*request); !valid.ok())
    return FinishUnary(context, valid);
  // Only the daemon's user and root can connect to an engine's own socket.
  const bool trusted = group_.has_value() && !peer->passed;
  const absl::StatusOr<std::vector<uint64_t>> done = EndHere(
      *request, *peer,
      trusted && !request->by().empty() ? Printable(request->by(), kMaxOfAName) : Who(*peer));
  if (done.ok()) ended->mutable_sessions()->Add(done->begin(), done->end());
  return FinishUnary(context, done.status());
}

grpc::ServerUnaryReactor* AdminService::GetEvents(grpc::CallbackServerContext* context,
                                                  const proto::GetEventsRequest* request,
                                                  proto::Events* events) {
  AddEvents(
      manager_.events(), *request, [](const DaemonEvent&) { return true; }, events);
  return FinishUnary(context, absl::OkStatus());
}

void AdminService::OnReload(Reloading reloading) {
  const MutexLock lock(&reload_mutex_);
  reloading_ = std::move(reloading);
}

grpc::ServerUnaryReactor* AdminService::Reload(grpc::CallbackServerContext* context,
                                               const proto::ReloadRequest*,
                                               proto::Reloaded* reloaded) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  Reloading reloading;
  {
    const MutexLock lock(&reload_mutex_);
    reloading = reloading_;
  }
  if (group_.has_value()) {
    return FinishUnary(context, absl::FailedPreconditionError(kReloadAll));
  }
  if (!reloading) {
    return FinishUnary(context, absl::FailedPreconditionError(kNoFileToReload));
  }
  absl::StatusOr<proto::Reloaded> result = reloading(Who(*peer));
  if (result.ok()) *reloaded = *std::move(result);
  return FinishUnary(context, result.status());
}

void AdminService::StopTraces() {
  for (DeviceScheduler* scheduler : manager_.Schedulers()) scheduler->StopTrace();
}

grpc::ServerUnaryReactor* AdminService::StartTrace(grpc::CallbackServerContext* context,
                                                   const proto::StartTraceRequest*,
                                                   proto::TraceStarted* started) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  const absl::StatusOr<uint64_t> trace = trace_.Begin([this] {
    for (DeviceScheduler* scheduler : manager_.Schedulers())
      DETSHARE_RETURN_IF_ERROR(scheduler->StartTrace());
    return absl::OkStatus();
  });
  if (!trace.ok()) return FinishUnary(context, trace.status());
  started->set_trace(*trace);
  started->set_now_ns(RealClock().NowNanoseconds());
  LogInfo("a trace began (", Who(*peer), ")");
  manager_.events().Add(EventBy(*peer, DaemonEvent::Kind::kTrace, "", "a trace began"));
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::FetchTrace(grpc::CallbackServerContext* context,
                                                   const proto::FetchTraceRequest* request,
                                                   proto::TraceChunk* chunk) {
  if (absl::Status allowed = MayAdminister(context).status(); !allowed.ok())
    return FinishUnary(context, allowed);
  return FinishUnary(
      context, trace_.Use(request->trace(), request->last(), [this, chunk] { AddTraced(chunk); }));
}

void AdminService::AddTraced(proto::TraceChunk* chunk) {
  std::map<uint64_t, SessionRequest> sessions;
  for (const SessionManager::SessionInfo& info : manager_.Sessions())
    sessions[info.id] = info.request;
  const std::vector<DeviceScheduler*> schedulers = manager_.Schedulers();
  for (size_t device = 0; device < schedulers.size(); ++device) {
    for (const DeviceScheduler::Traced& traced : schedulers[device]->FetchTrace()) {
      proto::SessionTrace* const one = chunk->add_sessions();
      one->set_session(traced.session);
      one->set_device(static_cast<uint32_t>(device));
      const auto known = sessions.find(traced.session);
      if (known != sessions.end()) {
        one->set_tenant(known->second.tenant);
        one->set_program(known->second.program);
        one->set_pid(known->second.pid);
      }
      Describe(traced.fetched, one);
    }
  }
}

}  // namespace detshare
