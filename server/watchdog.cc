#include "server/watchdog.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/control.grpc.pb.h"
#include "server/logging.h"

namespace detshare {
namespace {

absl::StatusOr<int> Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return absl::UnavailableError("the socket's path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // Not blocking: a full queue of connections is an answer, too.
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0)
    return fd;
  const int error = errno;
  if (fd >= 0) close(fd);
  return absl::UnavailableError(
      absl::StrCat("cannot connect to ", path, ": ", std::generic_category().message(error)));
}

// Shared with gRPC, which may answer when nobody waits any more.
struct Question {
  std::unique_ptr<proto::Control::Stub> stub;
  grpc::ClientContext context;
  proto::CallRequest request;  // of no session: nothing is done
  proto::CallReply reply;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;    // guarded by mutex
  grpc::Status status;  // guarded by mutex
};

}  // namespace

absl::Status AskDaemon(const std::string& socket, std::chrono::milliseconds patience) {
  const absl::StatusOr<int> fd = Connect(socket);
  if (!fd.ok()) return fd.status();
  const auto question = std::make_shared<Question>();
  question->stub = proto::Control::NewStub(grpc::CreateInsecureChannelFromFd("detshared", *fd));
  question->stub->async()->Call(&question->context, &question->request, &question->reply,
                                [question](const grpc::Status& status) {
                                  const std::lock_guard<std::mutex> lock(question->mutex);
                                  question->status = status;
                                  question->done = true;
                                  question->changed.notify_all();
                                });
  std::unique_lock<std::mutex> lock(question->mutex);
  // Timed here: gRPC's timers are off in the daemon (proto/quiet_grpc.h).
  if (!question->changed.wait_for(lock, patience, [&] { return question->done; })) {
    lock.unlock();
    question->context.TryCancel();
    return absl::DeadlineExceededError(
        absl::StrCat("no answer from ", socket, " for ", patience.count(), " ms"));
  }
  // That there is no such session is the answer.
  if (question->status.error_code() == grpc::StatusCode::NOT_FOUND) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("an unexpected answer from ", socket, ": ", question->status.error_message()));
}

Watchdog::Watchdog(std::chrono::milliseconds period, std::function<absl::Status()> check,
                   std::function<void()> feed)
    : period_(period), check_(std::move(check)), feed_(std::move(feed)) {
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::Run() {
  for (;;) {
    const absl::Status health = check_();
    if (health.ok()) {
      feed_();
    } else {
      LogError("the daemon does not serve, so that its watchdog is not fed: ",
               std::string(health.message()));
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (changed_.wait_for(lock, period_, [this] { return stopping_; })) return;
  }
}

}  // namespace detshare
