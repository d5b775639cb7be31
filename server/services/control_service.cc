#include "server/services/control_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/status_cuda.h"
#include "proto/version.h"
#include "server/access/identity.h"
#include "server/base/grpc_status.h"
#include "server/base/logging.h"
#include "server/base/printable.h"
#include "server/session/session_worker.h"

namespace detshare {
namespace {

constexpr size_t kMaxProgram = 256;
constexpr size_t kMaxTenant = 64;
constexpr int kMaxDeviceIds = 64;

}  // namespace

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
  grant.set_client_spin_us(static_cast<uint32_t>(options.client_spin_us));
  for (const SessionConfig::OnDevice& on : config.devices) {
    const DeviceProperties& properties = on.device->properties();
    grant.set_driver_version(properties.driver_version);
    proto::Device* const device = grant.add_devices();
    device->set_name(properties.name);
    device->set_uuid(properties.uuid.data(), properties.uuid.size());
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
              const std::optional<Peer>& peer)
      : service_(service), state_(std::make_shared<State>()) {
    state_->reactor = this;
    Begin(request, peer);
  }

  void OnWriteDone(bool) override {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->writing = false;
    state_->Proceed();
  }

  // The client closed the stream, or is gone.
  void OnCancel() override {
    std::shared_ptr<SessionWorker> worker;
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      state_->cancelled = true;
      if (state_->worker.lock() != nullptr) worker = state_->worker.lock();
      if (worker == nullptr) state_->FinishWith(grpc::Status::CANCELLED);
    }
    if (worker != nullptr) worker->End(kCudaErrorDeinitialized, "the client is gone");
  }

  void OnDone() override {
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      state_->reactor = nullptr;
    }
    delete this;
  }

 private:
  struct State {
    std::mutex mutex;
    OpenReactor* reactor = nullptr;  // null once gRPC is done with it
    std::weak_ptr<SessionWorker> worker;
    bool writing = false, finished = false, cancelled = false;
    proto::SessionEvent event;  // the message that is being written
    std::optional<proto::SessionEvent> next;
    std::optional<grpc::Status> status;  // the status to finish with, after `next`

    // Called with the mutex held.
    void Proceed() {
      if (reactor == nullptr || writing || finished) return;
      if (next.has_value()) {
        event = *std::move(next);
        next.reset();
        writing = true;
        reactor->StartWrite(&event);
      } else if (status.has_value()) {
        finished = true;
        reactor->Finish(*status);
      }
    }
    void FinishWith(const grpc::Status& with) {
      if (!status.has_value()) status = with;
      Proceed();
    }
  };

  void Begin(const proto::OpenSessionRequest& request, const std::optional<Peer>& peer) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    SessionRequest wanted;
    if (const grpc::Status status = Check(service_.identity_, request, peer, &wanted);
        !status.ok()) {
      LogWarning(
          "a session of ",
          peer.has_value() ? absl::StrCat("pid ", peer->pid) : std::string("an unknown process"),
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
        const std::lock_guard<std::mutex> lock(service->mutex_);
        service->connections_[worker.config().id] = connection;
      }
      const std::lock_guard<std::mutex> lock(state->mutex);
      state->next.emplace();
      proto::Grant* const grant = state->next->mutable_grant();
      *grant = MakeGrant(service->manager_, worker, file_bytes);
      grant->set_directory(service->directory_for_clients_ + grant->directory());
      state->Proceed();
    };
    listener.refused = [service, state](const absl::Status& why) {
      service->manager_.CountRefusal(why.code());
      const std::lock_guard<std::mutex> lock(state->mutex);
      state->FinishWith(ToGrpc(why));
    };
    listener.ended = [service, state](uint64_t session, int result, const std::string& reason) {
      {
        const std::lock_guard<std::mutex> lock(service->mutex_);
        service->connections_.erase(session);
      }
      const std::lock_guard<std::mutex> lock(state->mutex);
      if (!state->cancelled) {
        state->next.emplace();
        state->next->mutable_ended()->set_result(result);
        state->next->mutable_ended()->set_reason(reason);
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

  static grpc::Status Check(const Identity& identity, const proto::OpenSessionRequest& request,
                            const std::optional<Peer>& peer, SessionRequest* wanted) {
    if (!peer.has_value()) return {grpc::StatusCode::PERMISSION_DENIED, "not a local connection"};
    if (request.abi_version() != kAbiVersion) {
      return {grpc::StatusCode::FAILED_PRECONDITION,
              absl::StrCat("libcuda.so.1 of DetShare ", Printable(request.version(), 64), " (ABI ",
                           request.abi_version(), ") does not fit detshared ", kVersion, " (ABI ",
                           kAbiVersion, ")")};
    }
    if (const absl::Status allowed = MayUse(*peer); !allowed.ok()) return ToGrpc(allowed);
    const absl::StatusOr<std::string> tenant = identity.TenantName(request.tenant(), *peer);
    if (!tenant.ok()) return ToGrpc(tenant.status());
    wanted->tenant = *tenant;
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
    wanted->program = Printable(request.program(), kMaxProgram);
    return grpc::Status::OK;
  }

  ControlService& service_;
  const std::shared_ptr<State> state_;
};

void ControlService::NoteRefusal(const proto::OpenSessionRequest& request,
                                 const std::optional<Peer>& peer, const std::string& why) {
  DaemonEvent event;
  event.kind = DaemonEvent::Kind::kRefused;
  event.tenant = Printable(request.tenant(), kMaxTenant);
  event.program = Printable(request.program(), kMaxProgram);
  event.text = why;
  if (peer.has_value()) {
    event.pid = peer->pid;
    event.uid = peer->uid;
  }
  manager_.events().Add(std::move(event));
}

grpc::ServerWriteReactor<proto::SessionEvent>* ControlService::OpenSession(
    grpc::CallbackServerContext* context, const proto::OpenSessionRequest* request) {
  return new OpenReactor(*this, *request, peers_.Find(context->peer()));
}

// ---- Call and TakeReply

namespace {

// The status does not tell whether another connection has such a session.
const grpc::Status kNoSuchSession(grpc::StatusCode::NOT_FOUND,
                                  "this connection has no such session");

}  // namespace

std::shared_ptr<SessionWorker> ControlService::FindWorker(
    const grpc::CallbackServerContext& context, uint64_t session) {
  const std::optional<Peer> peer = peers_.Find(context.peer());
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = connections_.find(session);
  if (!peer.has_value() || found == connections_.end() || found->second != peer->connection)
    return nullptr;
  return manager_.Find(session);
}

grpc::ServerUnaryReactor* ControlService::TakeReply(grpc::CallbackServerContext* context,
                                                    const proto::TakeReplyRequest* request,
                                                    proto::LongReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::shared_ptr<SessionWorker> worker = FindWorker(*context, request->session());
  if (worker == nullptr) {
    reactor->Finish(kNoSuchSession);
    return reactor;
  }
  std::optional<std::string> body = worker->TakeReply(request->slot());
  if (body.has_value()) reply->set_body(*std::move(body));
  reactor->Finish(body.has_value()
                      ? grpc::Status::OK
                      : grpc::Status(grpc::StatusCode::NOT_FOUND, "no long reply in that slot"));
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Call(grpc::CallbackServerContext* context,
                                               const proto::CallRequest* request,
                                               proto::CallReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::shared_ptr<SessionWorker> worker = FindWorker(*context, request->session());
  if (worker == nullptr) {
    reactor->Finish(kNoSuchSession);
    return reactor;
  }
  if (request->op() > UINT16_MAX) {
    reactor->Finish({grpc::StatusCode::INVALID_ARGUMENT, "no such operation"});
    return reactor;
  }
  ControlCall call;
  call.op = static_cast<uint16_t>(request->op());
  call.device = request->device();
  call.context = request->context();
  call.after = request->after();
  // gRPC keeps request and reply until Finish().
  call.args = {reinterpret_cast<const uint8_t*>(request->args().data()), request->args().size()};
  // No other code reads this call's payload, so the call may take it over.
  call.payload = std::make_shared<const std::string>(
      std::move(*const_cast<proto::CallRequest*>(request)->mutable_payload()));
  call.done = [reactor, reply](int result, std::string body) {
    reply->set_result(result);
    reply->set_body(std::move(body));
    reactor->Finish(grpc::Status::OK);
  };
  worker->Call(std::move(call));
  return reactor;
}

}  // namespace detshare
