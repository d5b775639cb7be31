#include "server/engines/file_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "coroutine_runtime/status_cuda.h"
#include "proto/engine.pb.h"
#include "server/engines/message_socket.h"

namespace detshare {
namespace {

ClientMapping MappingOf(const proto::OpenFile& request) {
  ClientMapping mapping;
  mapping.pid = request.pid();
  mapping.uid = request.uid();
  mapping.begin = request.begin();
  mapping.end = request.end();
  mapping.device = request.device();
  mapping.inode = request.inode();
  mapping.descriptor = request.file_number();
  mapping.name = request.name();
  return mapping;
}

proto::OpenFile RequestFor(const std::string& ticket, const ClientMapping& mapping,
                           uint64_t bytes) {
  proto::OpenFile request;
  request.set_ticket(ticket);
  request.set_pid(mapping.pid);
  request.set_uid(mapping.uid);
  request.set_begin(mapping.begin);
  request.set_end(mapping.end);
  request.set_device(mapping.device);
  request.set_inode(mapping.inode);
  request.set_file_number(mapping.descriptor);
  request.set_name(mapping.name);
  request.set_bytes(bytes);
  return request;
}

absl::StatusOr<int> OpenFor(const proto::OpenFile& request, const TicketKey& key) {
  const ClientMapping mapping = MappingOf(request);
  if (!key.Accepts(request.ticket(), mapping.pid, mapping.uid))
    return absl::PermissionDeniedError("the process is no client of this engine");
  return OpenClientFile(mapping, request.bytes());
}

bool IsGone(ssize_t received) {
  return received == 0 ||
         (received < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

// Replies until the engine or the server ends the channel.
void Serve(const ChannelEnd& end, const TicketKey& key) {
  for (;;) {
    pollfd ready = {end.fd, POLLIN, 0};
    poll(&ready, 1, -1);
    std::vector<char> bytes;
    Descriptors unwanted;
    const ssize_t count = ReceiveMessage(end.fd, &bytes, &unwanted);
    if (IsGone(count)) return;
    proto::OpenFile request;
    // An engine runs what clients send it, so its messages may be anything.
    if (count < 0 || !request.ParseFromArray(bytes.data(), static_cast<int>(count))) continue;
    const absl::StatusOr<int> file = OpenFor(request, key);
    proto::OpenedFile reply;
    reply.set_question(request.question());
    if (!file.ok()) reply.set_refusal(std::string(file.status().message()));
    // An engine that does not read its reply gets none.
    SendMessage(end.fd, reply, file.ok() ? std::vector<int>{*file} : std::vector<int>())
        .IgnoreError();
    if (file.ok()) close(*file);
  }
}

}  // namespace

ChannelEnd::~ChannelEnd() { close(fd); }

FileServer::FileServer(int channel, TicketKey key) : end_(std::make_shared<ChannelEnd>(channel)) {
  std::thread([end = end_, key = std::move(key)] { Serve(*end, key); }).detach();
}

FileServer::~FileServer() { shutdown(end_->fd, SHUT_RDWR); }

FileChannel::FileChannel(int channel, std::chrono::milliseconds timeout)
    : timeout_(timeout), end_(std::make_shared<ChannelEnd>(channel)) {}

FileChannel::~FileChannel() = default;

absl::StatusOr<int> FileChannel::Open(const std::string& ticket, const ClientMapping& mapping,
                                      uint64_t bytes) {
  proto::OpenFile request = RequestFor(ticket, mapping, bytes);
  const MutexLock asking(&asking_);
  const Clock::time_point until = Clock::now() + timeout_;
  for (;;) {
    std::shared_ptr<const ChannelEnd> end;
    {
      const MutexLock lock(&mutex_);
      end = end_;
    }
    request.set_question(++question_);
    std::optional<absl::StatusOr<int>> reply = Ask(*end, request, until);
    if (reply.has_value()) return *std::move(reply);
    const MutexLock lock(&mutex_);
    while (end_ == end) {
      if (Clock::now() >= until)
        return absl::UnavailableError("there is no supervisor that could open a file");
      replaced_.WaitUntil(&mutex_, until);
    }
  }
}

std::optional<absl::StatusOr<int>> FileChannel::Ask(const ChannelEnd& end,
                                                    const proto::OpenFile& request,
                                                    Clock::time_point until) {
  if (!SendMessage(end.fd, request, {}).ok()) return std::nullopt;
  for (;;) {
    std::vector<char> bytes;
    Descriptors fds;
    const ssize_t count = ReceiveMessage(end.fd, &bytes, &fds);
    if (IsGone(count)) return std::nullopt;
    proto::OpenedFile reply;
    // A reply to an earlier question that timed out is dropped.
    if (count > 0 && reply.ParseFromArray(bytes.data(), static_cast<int>(count)) &&
        reply.question() == request.question()) {
      const int file = fds.Take();
      if (file >= 0) return file;
      return CudaError(kCudaErrorNotSupported, reply.refusal());
    }
    if (count > 0) continue;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0)
      return absl::UnavailableError("the supervisor does not open a file in time");
    pollfd ready = {end.fd, POLLIN, 0};
    poll(&ready, 1, static_cast<int>(left.count()));
  }
}

void FileChannel::Replace(int channel) {
  {
    const MutexLock lock(&mutex_);
    end_ = std::make_shared<ChannelEnd>(channel);
  }
  replaced_.SignalAll();
}

}  // namespace detshare
