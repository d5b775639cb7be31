#include "client_shim/transport/connection.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "client_shim/base/log.h"
#include "client_shim/base/signal_mask.h"
#include "client_shim/transport/daemon_socket.h"
#include "client_shim/transport/start_limits.h"
#include "proto/call_parts.h"
#include "proto/control.grpc.pb.h"
#include "proto/quiet_grpc.h"
#include "proto/ring_abi.h"

namespace detshare::shim {
namespace {

// An engine may take long to begin: the driver initialises idle GPUs, or the host is overloaded. A
// program that runs natively waits then, too. After the first time the user is told.
constexpr auto kSlowGrant = std::chrono::seconds(10);
constexpr auto kGrantTimeout = std::chrono::minutes(5);
// A daemon that lost its device replaces itself with a new process. A client that comes before the
// new daemon is ready tries again for this long.
constexpr auto kReplacementTimeout = std::chrono::seconds(5);
// The reason why a session has ended may come after the failure of a call.
constexpr auto kReasonTimeout = std::chrono::seconds(1);
constexpr auto kRedialPause = std::chrono::milliseconds(100);

std::atomic<bool> g_started{false};

// Prints why there is no session. Only once in a process, because programs call cuInit again and
// again.
void Explain(const std::string& text) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) Log(LogLevel::kError, "%s", text.c_str());
}

CUresult ResultOfRefusal(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::FAILED_PRECONDITION:
      return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return CUDA_ERROR_NOT_PERMITTED;
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::INVALID_ARGUMENT:
      return CUDA_ERROR_NO_DEVICE;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return CUDA_ERROR_OUT_OF_MEMORY;
    default:
      return CUDA_ERROR_SYSTEM_NOT_READY;
  }
}

class GrpcConnection final : public Connection {
 public:
  GrpcConnection(std::shared_ptr<grpc::Channel> channel, int fd)
      : fd_(fd), stub_(proto::Control::NewStub(channel)) {}
  // Only called after a failure, when the session's stream has ended.
  ~GrpcConnection() override {
    if (thread_started_) pthread_join(thread_, nullptr);
  }

  // Begins to open the session on a thread of its own.
  void Start(const proto::OpenSessionRequest& request) {
    request_ = request;
    thread_started_ = pthread_create(&thread_, nullptr, Main, this) == 0;
    if (thread_started_) pthread_setname_np(thread_, "detshare-events");
  }

  // After Start(): waits for the grant, or for the reason why there is none.
  grpc::Status AwaitGrant() {
    if (!thread_started_)
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "this process may not have more threads"};
    std::unique_lock lock(mutex_);
    const auto replied = [this] { return granted_ || done_; };
    bool reply = changed_.wait_for(lock, kSlowGrant, replied);
    if (!reply) {
      // An error is shown without DETSHARE_LOG.
      Log(LogLevel::kError,
          "detshared accepted the connection and has not replied for %d s; waiting on (detsharectl "
          "status and doctor show whether it hangs)",
          static_cast<int>(kSlowGrant.count()));
      reply = changed_.wait_for(lock, kGrantTimeout - kSlowGrant, replied);
    }
    if (!reply) {
      lock.unlock();
      context_.TryCancel();
      lock.lock();
      changed_.wait(lock, [this] { return done_; });
      return {grpc::StatusCode::DEADLINE_EXCEEDED,
              "detshared accepted the connection but does not reply"};
    }
    if (granted_) return grpc::Status::OK;
    return status_.ok()
               ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "detshared ended the session at once")
               : status_;
  }

  const proto::Grant& grant() const override { return grant_; }

  void Watch(std::atomic<uint32_t>* closed) override {
    const std::lock_guard lock(mutex_);
    closed_ = closed;
    if (done_) closed_->store(1, std::memory_order_release);
  }

  CUresult result() const override { return result_.load(std::memory_order_acquire); }

  void AwaitEnd(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return done_; });
  }

  void AwaitNotice(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return noticed_ || done_; });
  }

  CUresult Call(proto::CallRequest request, std::span<const ConstBuffer> payload,
                proto::CallReply* reply) override {
    uint64_t left = 0;
    for (const ConstBuffer& piece : payload) left += piece.bytes;
    request.set_payload_bytes(left);
    grpc::ClientContext context;
    const auto writer = stub_->Call(&context, reply);
    proto::CallPart part;
    *part.mutable_request() = std::move(request);
    uint64_t room = kFirstCallPartBytes;
    for (const ConstBuffer& piece : payload) {
      for (size_t sent = 0; sent < piece.bytes;) {
        const size_t bytes = std::min<size_t>(piece.bytes - sent, room);
        part.mutable_payload()->append(static_cast<const char*>(piece.data) + sent, bytes);
        sent += bytes;
        room -= bytes;
        left -= bytes;
        if (room != 0 || left == 0) continue;
        // The daemon may have replied already, for example that the session is over.
        if (!writer->Write(part)) return ResultOfCall(writer->Finish(), *reply);
        part.Clear();
        room = kCallPartBytes;
      }
    }
    writer->WriteLast(part, grpc::WriteOptions());
    return ResultOfCall(writer->Finish(), *reply);
  }

  CUresult ResultOfCall(const grpc::Status& status, const proto::CallReply& reply) {
    return status.ok() ? static_cast<CUresult>(reply.result()) : ResultOf(status);
  }

  CUresult TakeReply(uint64_t session, uint32_t slot, std::string* body) override {
    grpc::ClientContext context;
    proto::TakeReplyRequest request;
    request.set_session(session);
    request.set_slot(slot);
    proto::LongReply reply;
    const grpc::Status status = stub_->TakeReply(&context, request, &reply);
    if (!status.ok()) return ResultOf(status);
    *body = std::move(*reply.mutable_body());
    return CUDA_SUCCESS;
  }

  void CloseInChild() override { close(fd_); }

 private:
  // The CUresult of a call that gRPC could not make.
  CUresult ResultOf(const grpc::Status& status) {
    Log(LogLevel::kInfo, "a call failed: %s", status.error_message().c_str());
    switch (status.error_code()) {
      case grpc::StatusCode::UNIMPLEMENTED:
        return CUDA_ERROR_NOT_SUPPORTED;
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return CUDA_ERROR_OUT_OF_MEMORY;
      case grpc::StatusCode::UNAVAILABLE:
      case grpc::StatusCode::CANCELLED:
      case grpc::StatusCode::NOT_FOUND:
        AwaitEnd(kReasonTimeout);
        return result();
      default:
        return result();
    }
  }

  static void* Main(void* self) {
    static_cast<GrpcConnection*>(self)->Listen();
    return nullptr;
  }

  // Reads the daemon's events about the session until the session ends. (A client with gRPC's
  // callbacks would have threads that look for work every second.)
  void Listen() {
    const auto stream = stub_->OpenSession(&context_, request_);
    proto::SessionEvent event;
    bool announced = false;
    while (stream->Read(&event)) {
      if (event.has_grant()) {
        const std::lock_guard lock(mutex_);
        if (!granted_) grant_ = event.grant();
        granted_ = true;
        changed_.notify_all();
      } else if (event.has_notice()) {
        Log(LogLevel::kError, "%s", event.notice().c_str());
        const std::lock_guard lock(mutex_);
        noticed_ = true;
        changed_.notify_all();
      } else if (event.has_ended()) {
        if (event.ended().result() != 0) {
          result_.store(static_cast<CUresult>(event.ended().result()), std::memory_order_release);
        }
        Log(LogLevel::kError, "detshared ended the session: %s", event.ended().reason().c_str());
        announced = true;
      }
    }
    const grpc::Status status = stream->Finish();
    const std::lock_guard lock(mutex_);
    status_ = status;
    done_ = true;
    if (closed_ != nullptr) {
      if (!announced) ExplainLoss();
      closed_->store(1, std::memory_order_release);
    }
    changed_.notify_all();
  }

  void ExplainLoss() const {
    if (grant_.group().empty()) {
      Log(LogLevel::kError, "the connection to detshared is lost");
    } else {
      Log(LogLevel::kError,
          "the engine of isolation group %s has ended, and this session with it; other groups are "
          "not affected. Start the program again: it gets a new engine",
          grant_.group().c_str());
    }
  }

  const int fd_;
  const std::unique_ptr<proto::Control::Stub> stub_;
  grpc::ClientContext context_;
  proto::OpenSessionRequest request_;
  pthread_t thread_{};
  bool thread_started_ = false;
  std::atomic<CUresult> result_{CUDA_ERROR_SYSTEM_NOT_READY};
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  proto::Grant grant_;
  grpc::Status status_;
  bool granted_ = false;
  bool noticed_ = false;
  bool done_ = false;
  std::atomic<uint32_t>* closed_ = nullptr;
};

// Returns a session that the daemon granted, or null with the reason in `status`. `fd` is a
// connected socket; the connection takes it over.
std::unique_ptr<Connection> AskForSession(int fd, const proto::OpenSessionRequest& request,
                                          grpc::Status* status) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetMaxReceiveMessageSize(-1);
  // The descriptor is the session, so gRPC must not try to dial again.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // The probe measures with timers, so it is off.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20);
  std::unique_ptr<GrpcConnection> connection;
  {
    const SignalsBlocked for_grpcs_threads;
    g_started.store(true, std::memory_order_relaxed);
    StartQuietGrpc();
    connection = std::make_unique<GrpcConnection>(
        grpc::CreateCustomInsecureChannelFromFd("detshared", fd, arguments), fd);
    connection->Start(request);
  }
  *status = connection->AwaitGrant();
  if (!status->ok()) return nullptr;
  return connection;
}

}  // namespace

bool Connection::started() { return g_started.load(std::memory_order_relaxed); }

std::unique_ptr<Connection> Connection::Open(const std::string& socket_path,
                                             const proto::OpenSessionRequest& request,
                                             CUresult* result) {
  const char* lacking = "";
  *result = CheckStartLimits(&lacking);
  if (*result != CUDA_SUCCESS) {
    Explain(std::string("this process may not have enough ") + lacking + " to use CUDA");
    return nullptr;
  }
  const auto give_up = std::chrono::steady_clock::now() + kReplacementTimeout;
  for (;;) {
    const int fd = ConnectToDaemon(socket_path);
    if (fd < 0) {
      *result = CUDA_ERROR_SYSTEM_NOT_READY;
      if (errno == EACCES || errno == EPERM) {
        Explain("no permission to connect to detshared at " + socket_path +
                ": join the socket's group and log in again");
        *result = CUDA_ERROR_NOT_PERMITTED;
      } else if (errno == ENAMETOOLONG) {
        Explain(socket_path + " is too long for a socket's path: name a shorter one");
      } else {
        Explain("detshared is not running at " + socket_path +
                ": start it (systemctl start detshared, or detshare run --standalone -- PROGRAM)");
      }
      return nullptr;
    }
    grpc::Status status;
    std::unique_ptr<Connection> connection = AskForSession(fd, request, &status);
    if (connection) return connection;
    *result = ResultOfRefusal(status);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) return nullptr;
    // Cancelled: the process that took the connection ended.
    const bool gone = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                      status.error_code() == grpc::StatusCode::CANCELLED;
    if (gone && std::chrono::steady_clock::now() < give_up) {
      Log(LogLevel::kInfo, "no reply (%s), trying again", status.error_message().c_str());
      std::this_thread::sleep_for(kRedialPause);
      continue;
    }
    const std::string own =
        request.version() + " (ABI " + std::to_string(request.abi_version()) + ")";
    switch (status.error_code()) {
      case grpc::StatusCode::FAILED_PRECONDITION:
        Explain("this libcuda.so.1 is version " + own + ", detshared at " + socket_path +
                " refuses it: " + status.error_message());
        break;
      case grpc::StatusCode::UNAVAILABLE:
        Explain(
            "detshared at " + socket_path + " opens no session: " + status.error_message() +
            ". If that goes on, detsharectl doctor looks for the cause, such as a detshared that "
            "does not fit this libcuda.so.1, version " +
            own);
        break;
      default:
        Explain("detshared at " + socket_path + " refuses a session: " + status.error_message());
    }
    return nullptr;
  }
}

}  // namespace detshare::shim
