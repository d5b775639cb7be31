#include "server/services/supervisor_service.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/clock.h"
#include "policy/status_macros.h"
#include "proto/version.h"
#include "proto/warning.h"
#include "server/base/grpc_status.h"
#include "server/base/logging.h"
#include "server/base/printable.h"
#include "server/engines/engine_process.h"
#include "server/services/admin_common.h"
#include "server/services/admin_service.h"
#include "server/services/control_service.h"
#include "server/services/status_sum.h"

namespace detshare {
namespace {

// Counts the sessions of an engine that does not reply by their directories.
uint32_t SessionsIn(const std::string& engine_directory) {
  uint32_t sessions = 0;
  std::error_code error;
  std::filesystem::directory_iterator one(engine_directory + "/sessions", error), end;
  for (; !error && one != end; one.increment(error)) ++sessions;
  return sessions;
}

proto::EngineStatus Silent(const EngineInfo& engine, const absl::Status& why) {
  proto::EngineStatus status;
  status.set_group(engine.group);
  status.set_pid(engine.pid);
  status.set_sessions(SessionsIn(engine.directory));
  status.set_socket(EngineSocket(engine.directory));
  status.set_problem(absl::IsUnavailable(why)        ? "it begins or ends"
                     : absl::IsDeadlineExceeded(why) ? "it does not reply"
                                                     : std::string(why.message()));
  return status;
}

// The client of a call, which ends with the call's messages. gRPC keeps both until then.
EngineCalls::Caller CallerOf(grpc::CallbackServerContext* context,
                             grpc::ServerUnaryReactor* reactor) {
  return {[context] { return context->IsCancelled(); },
          [reactor](const absl::Status& result) { reactor->Finish(ToGrpc(result)); }};
}

// Removes the sessions for which `visible` returns false, and the tenants without one that is left.
void Hide(const std::function<bool(uid_t)>& visible, proto::Status* status) {
  auto* const sessions = status->mutable_sessions();
  sessions->erase(std::remove_if(sessions->begin(), sessions->end(),
                                 [&](const auto& one) { return !visible(one.uid()); }),
                  sessions->end());
  auto* const tenants = status->mutable_tenants();
  tenants->erase(std::remove_if(tenants->begin(), tenants->end(),
                                [&](const proto::TenantUse& tenant) {
                                  return std::none_of(sessions->begin(), sessions->end(),
                                                      [&](const auto& one) {
                                                        return one.tenant() == tenant.name();
                                                      });
                                }),
                 tenants->end());
}

}  // namespace

SupervisorService::SupervisorService(EngineCalls& engines, KnownDevices& devices,
                                     SettingsStore& settings,
                                     std::function<void()> settings_changed, EventLog& events,
                                     const Owners& owners, const Identity& identity,
                                     PeerTable& peers)
    : engines_(engines),
      devices_(devices),
      settings_(settings),
      owners_(owners),
      settings_changed_(std::move(settings_changed)),
      events_(events),
      identity_(identity),
      peers_(peers),
      begin_(std::chrono::steady_clock::now()),
      trace_([this] { traces_.clear(); }, TraceLease::kTimeout) {}

bool SupervisorService::Sees(const Peer& peer, uid_t user) const {
  return user == peer.uid || identity_.MayAdminister(peer).ok();
}

grpc::ServerUnaryReactor* SupervisorService::Finish(grpc::CallbackServerContext* context,
                                                    std::function<absl::Status()> job) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  engines_.Do(CallerOf(context, reactor), std::move(job));
  return reactor;
}

void SupervisorService::Describe(const Peer& peer, const EngineCalls::Replies& replies,
                                 proto::Status* status) {
  status->set_version(kVersion);
  status->set_abi_version(kAbiVersion);
  status->set_uptime_ms(std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now() - begin_)
                            .count());
  status->set_pid(getpid());
  status->set_policy(TextOf(settings_.current().policy()));
  const bool all = identity_.MayAdminister(peer).ok();
  proto::Status devices;  // also those of engines that the peer does not see
  for (const EngineCalls::Reply& reply : replies) {
    if (!reply.status.ok()) {
      if (all) *status->add_engines() = Silent(reply.engine, reply.status.status());
      continue;
    }
    AddDevices(*reply.status, &devices);
    if (all) {
      AddStatus(*reply.status, status);
      continue;
    }
    proto::Status own = *reply.status;
    Hide([&](uid_t user) { return user == peer.uid; }, &own);
    if (own.sessions_size() != 0) AddStatus(own, status);
  }
  if (all) {
    for (const pid_t spare : engines_.engines().Spares()) status->add_spare_engines(spare);
  }
  devices_.Note(devices);
  devices_.AddTo(status);
  // How much of a card is in use is no secret. Whose programs use it is one.
  CopyUseOfDevices(devices, status);
  AddOwners(owners_, status);
}

grpc::ServerUnaryReactor* SupervisorService::GetStatus(grpc::CallbackServerContext* context,
                                                       const proto::GetStatusRequest*,
                                                       proto::Status* status) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  engines_.Read(CallerOf(context, reactor),
                [this, status, peer = *peer](const EngineCalls::Replies& replies) {
                  Describe(peer, replies, status);
                  return absl::OkStatus();
                });
  return reactor;
}

grpc::ServerUnaryReactor* SupervisorService::GetPolicies(grpc::CallbackServerContext* context,
                                                         const proto::GetPoliciesRequest*,
                                                         proto::Policies* policies) {
  DescribePolicies(settings_.current().policy(), policies);
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* SupervisorService::GetTenants(grpc::CallbackServerContext* context,
                                                        const proto::GetTenantsRequest*,
                                                        proto::Tenants* tenants) {
  *tenants->mutable_tenants() = settings_.current().tenants();
  return FinishUnary(context, absl::OkStatus());
}

absl::Status SupervisorService::InForce(const absl::StatusOr<bool>& everywhere,
                                        grpc::CallbackServerContext* context) {
  // An engine that does not reply (Aborted) may have it.
  const bool silent = absl::IsAborted(everywhere.status());
  if (!everywhere.ok() && !silent) settings_.TakeBack();
  if (!everywhere.ok() || !*everywhere) settings_changed_();
  if (!silent) return everywhere.status();
  const std::string warning =
      absl::StrCat("the change is in force; ", std::string(everywhere.status().message()),
                   " and gets it when it does");
  LogWarning(warning);
  context->AddTrailingMetadata(kWarningMetadata, warning);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SupervisorService::SetPolicy(grpc::CallbackServerContext* context,
                                                       const proto::PolicySetting* setting,
                                                       proto::PolicySetting* in_force) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status allowed = identity_.MayAdminister(*peer); !allowed.ok())
    return FinishUnary(context, allowed);
  if (absl::Status allowed = MaySetPolicy(*setting, *peer); !allowed.ok())
    return FinishUnary(context, allowed);
  return Finish(context, [this, context, setting, in_force, peer = *peer]() -> absl::Status {
    // Engines that begin from here on have the new policy.
    DETSHARE_RETURN_IF_ERROR(settings_.SetPolicy(*setting));
    DETSHARE_RETURN_IF_ERROR(InForce(engines_.SetPolicy(*setting), context));
    *in_force = settings_.current().policy();
    LogInfo("policy ", TextOf(*setting), " is in force (", Who(peer), ")");
    events_.Add(EventBy(peer, DaemonEvent::Kind::kPolicy, "", TextOf(*setting)));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SupervisorService::SetTenant(grpc::CallbackServerContext* context,
                                                       const proto::TenantSetting* setting,
                                                       proto::TenantSetting* in_force) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status allowed = identity_.MayAdminister(*peer); !allowed.ok())
    return FinishUnary(context, allowed);
  return Finish(context, [this, context, setting, in_force, peer = *peer]() -> absl::Status {
    // Engines check this themselves, but perhaps none runs.
    DETSHARE_RETURN_IF_ERROR(devices_.Check(*setting));
    DETSHARE_ASSIGN_OR_RETURN(*in_force, settings_.SetTenant(*setting));
    DETSHARE_RETURN_IF_ERROR(InForce(engines_.SetTenant(*setting), context));
    LogInfo("settings of tenant ", in_force->name(), ": ", ChangeText(*in_force), " (", Who(peer),
            ")");
    events_.Add(EventBy(peer, DaemonEvent::Kind::kTenant, in_force->name(), ChangeText(*setting)));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SupervisorService::UnsetTenant(grpc::CallbackServerContext* context,
                                                         const proto::UnsetTenantRequest* request,
                                                         proto::Tenants* in_force) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status allowed = identity_.MayAdminister(*peer); !allowed.ok())
    return FinishUnary(context, allowed);
  if (absl::Status unset = settings_.UnsetTenant(request->name()); !unset.ok())
    return FinishUnary(context, unset);
  settings_changed_();
  AddTenant(settings_.current(), request->name(), in_force);
  LogInfo("tenant ", request->name(), " has the configuration's settings (", Who(*peer), ")");
  events_.Add(
      EventBy(*peer, DaemonEvent::Kind::kTenant, request->name(), "the configuration's settings"));
  return FinishUnary(context, absl::OkStatus());
}

absl::Status SupervisorService::End(const proto::EndSessionsRequest& request, const Peer& peer,
                                    proto::EndedSessions* ended) {
  // Finds the engines of all sessions before it ends any.
  const std::set<uint64_t> wanted(request.sessions().begin(), request.sessions().end());
  std::set<uint64_t> found;
  std::vector<std::pair<EngineInfo, proto::EndSessionsRequest>> parts;
  std::string silent;
  for (const EngineCalls::Reply& reply : engines_.AskStatus()) {
    if (!reply.status.ok()) {
      absl::StrAppend(&silent, "; the engine of isolation group ", reply.engine.group,
                      " does not reply: ", std::string(reply.status.status().message()));
      continue;
    }
    proto::EndSessionsRequest part;
    for (const proto::SessionStatus& session : reply.status->sessions()) {
      const bool meant = request.tenant().empty() ? wanted.contains(session.session())
                                                  : session.tenant() == request.tenant();
      // Users do not learn that others' sessions exist.
      if (!meant || !Sees(peer, session.uid())) continue;
      part.add_sessions(session.session());
      found.insert(session.session());
    }
    part.set_by(Who(peer));
    if (part.sessions_size() != 0) parts.emplace_back(reply.engine, std::move(part));
  }
  for (const uint64_t id : wanted) {
    if (!found.contains(id))
      return absl::NotFoundError(absl::StrCat("there is no session ", id, silent));
  }
  // Unavailable would mean that the daemon does not reply.
  if (found.empty() && !silent.empty()) {
    return absl::AbortedError(
        absl::StrCat("no session of tenant ", Printable(request.tenant(), kMaxOfAName),
                     " was ended", silent, "; end that engine's process, which status names"));
  }
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("tenant ", Printable(request.tenant(), kMaxOfAName),
                                            " has no session", silent));
  }
  for (const auto& [engine, part] : parts) {
    if (const absl::Status status = engines_.End(engine, part); !status.ok()) {
      return absl::AbortedError(absl::StrCat("sessions of isolation group ", engine.group,
                                             " were not ended: ", std::string(status.message()),
                                             "; ", ended->sessions_size(), " other sessions end"));
    }
    ended->mutable_sessions()->MergeFrom(part.sessions());
  }
  std::sort(ended->mutable_sessions()->begin(), ended->mutable_sessions()->end());
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SupervisorService::EndSessions(grpc::CallbackServerContext* context,
                                                         const proto::EndSessionsRequest* request,
                                                         proto::EndedSessions* ended) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status valid = CheckEndRequest(*request); !valid.ok())
    return FinishUnary(context, valid);
  return Finish(context,
                [this, request, ended, peer = *peer] { return End(*request, peer, ended); });
}

grpc::ServerUnaryReactor* SupervisorService::GetEvents(grpc::CallbackServerContext* context,
                                                       const proto::GetEventsRequest* request,
                                                       proto::Events* events) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  const bool all = identity_.MayAdminister(*peer).ok();
  AddEvents(
      events_, *request, [&](const DaemonEvent& event) { return all || event.uid == peer->uid; },
      events);
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* SupervisorService::Reload(grpc::CallbackServerContext* context,
                                                    const proto::ReloadRequest*,
                                                    proto::Reloaded* reloaded) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status allowed = identity_.MayAdminister(*peer); !allowed.ok())
    return FinishUnary(context, allowed);
  if (!reload_) return FinishUnary(context, absl::FailedPreconditionError(kNoFileToReload));
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reload_(Who(*peer), [reactor, reloaded](absl::StatusOr<proto::Reloaded> result) {
    if (result.ok()) *reloaded = *std::move(result);
    reactor->Finish(ToGrpc(result.status()));
  });
  return reactor;
}

absl::Status SupervisorService::StartTrace(const Peer& peer, proto::TraceStarted* started) {
  DETSHARE_ASSIGN_OR_RETURN(const uint64_t trace, trace_.Begin([this] {
    const absl::Status begun = engines_.StartTraces(&traces_);
    proto::TraceChunk nothing;
    if (!begun.ok()) engines_.FetchTraces(/*last=*/true, &traces_, &nothing);
    return begun;
  }));
  started->set_trace(trace);
  started->set_now_ns(RealClock().NowNanoseconds());
  LogInfo("a trace of all engines began (", Who(peer), ")");
  events_.Add(EventBy(peer, DaemonEvent::Kind::kTrace, "", "a trace began"));
  return absl::OkStatus();
}

absl::Status SupervisorService::FetchTrace(const proto::FetchTraceRequest& request,
                                           proto::TraceChunk* chunk) {
  return trace_.Use(request.trace(), request.last(), [&] {
    // An engine that has begun meanwhile joins. If another client takes a trace of it alone, it joins
    // when that trace has ended.
    if (!request.last()) engines_.StartTraces(&traces_).IgnoreError();
    engines_.FetchTraces(request.last(), &traces_, chunk);
  });
}

grpc::ServerUnaryReactor* SupervisorService::StartTrace(grpc::CallbackServerContext* context,
                                                        const proto::StartTraceRequest*,
                                                        proto::TraceStarted* started) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status allowed = identity_.MayAdminister(*peer); !allowed.ok())
    return FinishUnary(context, allowed);
  return Finish(context, [this, started, peer = *peer] { return StartTrace(peer, started); });
}

grpc::ServerUnaryReactor* SupervisorService::FetchTrace(grpc::CallbackServerContext* context,
                                                        const proto::FetchTraceRequest* request,
                                                        proto::TraceChunk* chunk) {
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  if (!peer.ok()) return FinishUnary(context, peer.status());
  if (absl::Status allowed = identity_.MayAdminister(*peer); !allowed.ok())
    return FinishUnary(context, allowed);
  return Finish(context, [this, request, chunk] { return FetchTrace(*request, chunk); });
}

// ---- programs that get no engine

namespace {

class Refusal final : public grpc::ServerWriteReactor<proto::SessionEvent> {
 public:
  explicit Refusal(const absl::Status& why) { Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerWriteReactor<proto::SessionEvent>* RefusalService::OpenSession(
    grpc::CallbackServerContext* context, const proto::OpenSessionRequest* request) {
  if (request->abi_version() != kAbiVersion) return new Refusal(WrongVersion(*request));
  const absl::StatusOr<Peer> peer = peers_.Find(context->peer());
  return new Refusal(peer.ok() ? peer->tenant.status() : peer.status());
}

}  // namespace detshare
