#include "server/services/control_service.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/status_cuda.h"
#include "proto/version.h"
#include "server/access/peer_table.h"
#include "server/base/grpc_status.h"
#include "server/base/logging.h"
#include "server/base/printable.h"
#include "server/services/control_call.h"
#include "server/session/session_limits.h"
#include "server/session/session_worker.h"

namespace detshare {
namespace {

constexpr size_t kMaxProgram = 256;
constexpr int kMaxDeviceIds = 64;

}  // namespace

absl::Status WrongVersion(const proto::OpenSessionRequest& request) {
  return absl::FailedPreconditionError(absl::StrCat(
      "libcuda.so.1 of DetShare ", Printable(request.version(), 64), " (ABI ",
      request.abi_version(), ") does not fit detshared ", kVersion, " (ABI ", kAbiVersion, ")"));
}

proto::Grant MakeGrant(const SessionManager& manager, const SessionWorker& worker,
                       uint64_t file_bytes) {
  const SessionConfig& config = worker.config();
  const ServerOptions& options = manager.options();
  proto::Grant grant;
  grant.set_session(config.id);
  grant.set_directory(absl::StrCat("sessions/", config.id));
  grant.set_file_bytes(file_bytes);
  grant.set_pinned_base(options.windows.pinned_base +
                        options.windows.pinned_bytes * static_cast<uint64_t>(config.slot));
  grant.set_pinned_bytes(options.windows.pinned_bytes);
  grant.set_version(kVersion);
  grant.set_limited(config.pinned_quota != nullptr &&
                    config.pinned_quota->limit() != Quota::kNoLimit);
  grant.set_client_spin_us(static_cast<uint32_t>(options.client_spin_us));
  const SessionLimits& limits = worker.limits();
  grant.set_max_contexts(limits.contexts);
  grant.set_max_streams(limits.streams);
  grant.set_max_events(limits.events);
  for (const SessionConfig::OnDevice& on : config.devices) {
    const DeviceProperties& properties = on.device->properties();
    grant.set_driver_version(properties.driver_version);
    proto::Device* const device = grant.add_devices();
    device->set_name(properties.name);
    device->set_uuid(properties.uuid.data(), properties.uuid.size());
    if (on.quota->limit() != Quota::kNoLimit) grant.set_limited(true);
    device->set_total_memory(std::min(properties.total_memory, on.quota->limit()));
    for (const auto& [attribute, value] : properties.attributes)
      (*device->mutable_attributes())[attribute] = value;
    device->set_memory_base(on.memory_base);
    device->set_memory_bytes(on.memory_bytes);
    for (const uint64_t limit : properties.limits) device->add_limits(limit);
    device->set_least_stream_priority(properties.least_stream_priority);
    device->set_greatest_stream_priority(properties.greatest_stream_priority);
    device->set_tpc_gpc(properties.tpc_gpc.data(), properties.tpc_gpc.size());
    device->set_tpc_index(properties.tpc_index.data(), properties.tpc_index.size());
    device->set_memory_granularity(properties.memory_granularity);
    device->set_ptx_only(properties.ptx_only);
    for (const SessionConfig::OnDevice& other : config.devices) {
      proto::Peer* const peer = device->add_peers();
      if (other.device == on.device) continue;
      for (const auto& [attribute, value] : on.device->PeerAttributes(*other.device))
        (*peer->mutable_attributes())[attribute] = value;
    }
  }
  return grant;
}

// ---- OpenSession

// Lives from the call until gRPC is done with it. The session's thread and gRPC's threads share the
// State, which its mutex guards. The session's callbacks keep the State alive, so they may run
// after the reactor is gone.
class ControlService::OpenReactor final : public grpc::ServerWriteReactor<proto::SessionEvent> {
 public:
  OpenReactor(ControlService& service, const proto::OpenSessionRequest& request,
              const absl::StatusOr<Peer>& peer)
      : service_(service), state_(std::make_shared<State>()) {
    state_->reactor = this;
    Begin(request, peer);
  }

  void OnWriteDone(bool) override {
    const MutexLock lock(&state_->mutex);
    state_->writing = false;
    state_->Proceed();
  }

  // The client closed the stream, or is gone.
  void OnCancel() override {
    std::shared_ptr<SessionWorker> worker;
    {
      const MutexLock lock(&state_->mutex);
      state_->cancelled = true;
      if (state_->worker.lock() != nullptr) worker = state_->worker.lock();
      if (worker == nullptr) state_->FinishWith(grpc::Status::CANCELLED);
    }
    if (worker != nullptr) worker->End(kCudaErrorDeinitialized, "the client is gone");
  }

  void OnDone() override {
    {
      const MutexLock lock(&state_->mutex);
      state_->reactor = nullptr;
    }
    delete this;
  }

 private:
  struct State {
    Mutex mutex;
    OpenReactor* reactor ABSL_GUARDED_BY(mutex) = nullptr;  // null once gRPC is done with it
    std::weak_ptr<SessionWorker> worker ABSL_GUARDED_BY(mutex);
    bool writing ABSL_GUARDED_BY(mutex) = false;
    bool finished ABSL_GUARDED_BY(mutex) = false;
    bool cancelled ABSL_GUARDED_BY(mutex) = false;
    proto::SessionEvent event ABSL_GUARDED_BY(mutex);  // the message that is being written
    std::deque<proto::SessionEvent> next ABSL_GUARDED_BY(mutex);
    // The status to finish with, after `next`.
    std::optional<grpc::Status> status ABSL_GUARDED_BY(mutex);

    void Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      if (reactor == nullptr || writing || finished) return;
      if (!next.empty()) {
        event = std::move(next.front());
        next.pop_front();
        writing = true;
        reactor->StartWrite(&event);
      } else if (status.has_value()) {
        finished = true;
        reactor->Finish(*status);
      }
    }
    void FinishWith(const grpc::Status& with) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      if (!status.has_value()) status = with;
      Proceed();
    }
  };

  void Begin(const proto::OpenSessionRequest& request, const absl::StatusOr<Peer>& peer) {
    const MutexLock lock(&state_->mutex);
    SessionRequest wanted;
    if (const grpc::Status status = Check(request, peer, &wanted); !status.ok()) {
      LogWarning("a session of ",
                 peer.ok() ? absl::StrCat("pid ", peer->pid) : std::string("an unknown process"),
                 " is refused: ", status.error_message());
      service_.NoteRefusal(request, peer, status.error_message());
      service_.manager_.CountRefusal(static_cast<absl::StatusCode>(status.error_code()));
      return state_->FinishWith(status);
    }
    SessionManager::Listener listener;
    ControlService* const service = &service_;
    const std::shared_ptr<State> state = state_;
    const uint64_t connection = peer->connection;
    listener.granted = [service, state, connection](SessionWorker& worker, uint64_t file_bytes) {
      {
        const MutexLock lock(&service->mutex_);
        service->connections_[worker.config().id] = connection;
      }
      service->peers_.SessionBegins(connection);
      const MutexLock lock(&state->mutex);
      proto::Grant* const grant = state->next.emplace_back().mutable_grant();
      *grant = MakeGrant(service->manager_, worker, file_bytes);
      grant->set_directory(service->directory_for_clients_ + grant->directory());
      grant->set_group(service->group_);
      state->Proceed();
    };
    listener.refused = [service, state](const absl::Status& why) {
      service->manager_.CountRefusal(why.code());
      const MutexLock lock(&state->mutex);
      state->FinishWith(ToGrpc(why));
    };
    listener.limited = [state](const std::string& why) {
      const MutexLock lock(&state->mutex);
      state->next.emplace_back().set_notice(why);
      state->Proceed();
    };
    listener.ended = [service, state, connection](uint64_t session, int result,
                                                  const std::string& reason) {
      {
        const MutexLock lock(&service->mutex_);
        service->connections_.erase(session);
      }
      service->peers_.SessionEnds(connection);
      const MutexLock lock(&state->mutex);
      if (!state->cancelled) {
        proto::Ended* const ended = state->next.emplace_back().mutable_ended();
        ended->set_result(result);
        ended->set_reason(reason);
      }
      state->FinishWith(grpc::Status::OK);
    };
    absl::StatusOr<std::shared_ptr<SessionWorker>> worker =
        service_.manager_.Open(wanted, std::move(listener));
    if (!worker.ok()) {
      LogWarning("a session of pid ", peer->pid,
                 " is refused: ", std::string(worker.status().message()));
      service_.NoteRefusal(request, peer, std::string(worker.status().message()));
      service_.manager_.CountRefusal(worker.status().code());
      return state_->FinishWith(ToGrpc(worker.status()));
    }
    state_->worker = *worker;
  }

  static grpc::Status Check(const proto::OpenSessionRequest& request,
                            const absl::StatusOr<Peer>& peer, SessionRequest* wanted) {
    if (!peer.ok()) return ToGrpc(peer.status());
    if (request.abi_version() != kAbiVersion) return ToGrpc(WrongVersion(request));
    if (!peer->tenant.ok()) return ToGrpc(peer->tenant.status());
    wanted->tenant = *peer->tenant;
    if (request.device_ids_size() > kMaxDeviceIds || request.visible_ids_size() > kMaxDeviceIds)
      return {grpc::StatusCode::INVALID_ARGUMENT, "too many devices"};
    if (!IsRunName(request.run()))
      return {grpc::StatusCode::INVALID_ARGUMENT,
              "the name of a run has at most 64 letters and digits"};
    wanted->device_ids.assign(request.device_ids().begin(), request.device_ids().end());
    wanted->device_count = request.device_count();
    wanted->run = request.run();
    wanted->visible_ids.assign(request.visible_ids().begin(), request.visible_ids().end());
    wanted->endpoint = peer->endpoint;
    wanted->owner = {peer->uid, peer->gid};
    wanted->pid = peer->pid;
    wanted->pid_namespace = peer->pid_namespace;
    wanted->ticket = peer->ticket;
    wanted->program = Printable(request.program(), kMaxProgram);
    return grpc::Status::OK;
  }

  ControlService& service_;
  const std::shared_ptr<State> state_;
};

void ControlService::NoteRefusal(const proto::OpenSessionRequest& request,
                                 const absl::StatusOr<Peer>& peer, const std::string& why) {
  DaemonEvent event;
  event.kind = DaemonEvent::Kind::kRefused;
  event.program = Printable(request.program(), kMaxProgram);
  event.text = why;
  if (peer.ok()) {
    event.pid = peer->pid;
    event.uid = peer->uid;
    if (peer->tenant.ok()) event.tenant = *peer->tenant;
    if (peer->endpoint != nullptr) event.endpoint = peer->endpoint->number;
  }
  manager_.events().Add(std::move(event));
}

grpc::ServerWriteReactor<proto::SessionEvent>* ControlService::OpenSession(
    grpc::CallbackServerContext* context, const proto::OpenSessionRequest* request) {
  return new OpenReactor(*this, *request, peers_.Find(context->peer()));
}

// ---- Call and TakeReply

const grpc::Status kNoSuchSession(grpc::StatusCode::NOT_FOUND,
                                  "this connection has no such session");

namespace {

// Sends the reply, and counts it until it is sent.
class TakeReplyReactor final : public grpc::ServerUnaryReactor {
 public:
  TakeReplyReactor(LongReplies::Taken taken, proto::LongReply* reply)
      : unsent_(std::move(taken.charge)) {
    reply->set_body(std::move(taken.body));
    Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  const QuotaCharge unsent_;
};

}  // namespace

std::shared_ptr<SessionWorker> ControlService::FindWorker(
    const grpc::CallbackServerContext& context, uint64_t session) {
  const absl::StatusOr<Peer> peer = peers_.Find(context.peer());
  const MutexLock lock(&mutex_);
  const auto found = connections_.find(session);
  if (!peer.ok() || found == connections_.end() || found->second != peer->connection)
    return nullptr;
  return manager_.Find(session);
}

grpc::ServerUnaryReactor* ControlService::TakeReply(grpc::CallbackServerContext* context,
                                                    const proto::TakeReplyRequest* request,
                                                    proto::LongReply* reply) {
  const std::shared_ptr<SessionWorker> worker = FindWorker(*context, request->session());
  std::optional<LongReplies::Taken> taken;
  if (worker != nullptr) taken = worker->TakeReply(request->slot());
  if (taken.has_value()) return new TakeReplyReactor(*std::move(taken), reply);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(worker == nullptr
                      ? kNoSuchSession
                      : grpc::Status(grpc::StatusCode::NOT_FOUND, "no long reply in that slot"));
  return reactor;
}

grpc::ServerReadReactor<proto::CallPart>* ControlService::Call(grpc::CallbackServerContext* context,
                                                               proto::CallReply* reply) {
  return new ControlCallReactor(
      [this, context](uint64_t session) { return FindWorker(*context, session); }, reply);
}

}  // namespace detshare
