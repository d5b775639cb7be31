#include "server/engines/admission_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/tenants/session_refusals.h"

namespace detshare {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kMaxName = 64;

// A number of a question means kEnter. Without one, a tenant means kGoesOn, and no session kToldAll:
// supervisors of earlier versions take it for kLeave, which does nothing then.
struct RequestMessage {
  uint64_t question = 0;
  uint64_t session = 0;
  char tenant[kMaxName] = {};  // ends at its first zero, or fills the array
};

struct ReplyMessage {
  uint64_t question = 0;
  uint64_t session = 0;
  uint64_t used = 0, limit = 0;
  uint32_t outcome = 0;
  uint32_t zero = 0;
};

RequestMessage MessageAbout(uint64_t session, const std::string& tenant) {
  RequestMessage message;
  message.session = session;
  std::memcpy(message.tenant, tenant.data(), std::min(tenant.size(), kMaxName));
  return message;
}

absl::Status WhyNot(const ReplyMessage& reply, const std::string& tenant) {
  switch (static_cast<SessionBook::Outcome>(reply.outcome)) {
    case SessionBook::Outcome::kEnter:
      return absl::OkStatus();
    case SessionBook::Outcome::kTenantIsFull:
      return TenantIsFull(tenant, reply.used, reply.limit);
    case SessionBook::Outcome::kDaemonIsFull:
      return DaemonIsFull(reply.used, reply.limit);
    case SessionBook::Outcome::kProcessIsFull:
      break;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "all ", reply.used, " sessions of this isolation group are in use: end a program"));
}

}  // namespace

std::optional<AdmissionRequest> TakeAdmissionRequest(int channel) {
  RequestMessage message;
  for (;;) {
    const ssize_t bytes = recv(channel, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);
    if (bytes <= 0) return std::nullopt;
    if (bytes == sizeof(message)) break;
  }
  AdmissionRequest request;
  request.question = message.question;
  request.session = message.session;
  request.tenant.assign(message.tenant, strnlen(message.tenant, kMaxName));
  if (request.question == 0) {
    request.kind = !request.tenant.empty() ? AdmissionRequest::Kind::kGoesOn
                   : request.session != 0  ? AdmissionRequest::Kind::kLeave
                                           : AdmissionRequest::Kind::kToldAll;
  }
  return request;
}

void SendAdmissionReply(int channel, uint64_t question, const SessionBook::Decision& decision) {
  ReplyMessage message;
  message.question = question;
  message.session = decision.session;
  message.used = decision.used;
  message.limit = decision.limit;
  message.outcome = static_cast<uint32_t>(decision.outcome);
  [[maybe_unused]] const ssize_t sent =
      send(channel, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT);
}

struct AdmissionChannel::Channel {
  explicit Channel(int end) : fd(end) {}
  ~Channel() { close(fd); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Does not wait.
  bool Send(const RequestMessage& message) const {
    return send(fd, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(message);
  }
  // Waits while the other end does not read. Returns whether the message is sent.
  enum class Sent { kYes, kEnded, kTooLate };
  Sent SendBefore(SteadyClock::time_point until, const RequestMessage& message) const {
    while (!Send(message)) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) return Sent::kEnded;
      if (!Await(POLLOUT, until)) return Sent::kTooLate;
    }
    return Sent::kYes;
  }
  // Waits until the channel is ready for `events`, or has failed. Returns false at `until`.
  bool Await(int16_t events, SteadyClock::time_point until) const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - SteadyClock::now());
    if (left.count() <= 0) return false;
    pollfd ready = {fd, events, 0};
    poll(&ready, 1, static_cast<int>(left.count()));
    return true;
  }

  const int fd;
};

AdmissionChannel::AdmissionChannel(int channel, std::chrono::milliseconds timeout)
    : timeout_(timeout), channel_(std::make_shared<Channel>(channel)) {}

AdmissionChannel::~AdmissionChannel() = default;

std::shared_ptr<AdmissionChannel::Channel> AdmissionChannel::channel() const {
  const MutexLock lock(&mutex_);
  return channel_;
}

SessionAdmission::Decision AdmissionChannel::Enter(const std::string& tenant) {
  const MutexLock asking(&asking_);
  const SteadyClock::time_point until = SteadyClock::now() + timeout_;
  std::shared_ptr<Channel> asked = channel();
  for (;;) {
    std::optional<Decision> decision = Ask(asked, tenant, until);
    if (decision.has_value()) return *std::move(decision);
    const MutexLock lock(&mutex_);
    while (channel_ == asked) {
      if (SteadyClock::now() >= until)
        return {absl::UnavailableError("the daemon ends, or starts again: try again"), 0, false};
      replaced_.WaitUntil(&mutex_, until);
    }
    asked = channel_;
  }
}

std::optional<SessionAdmission::Decision> AdmissionChannel::Ask(
    const std::shared_ptr<Channel>& channel, const std::string& tenant,
    SteadyClock::time_point until) {
  RequestMessage request = MessageAbout(0, tenant);
  request.question = ++question_;
  if (!channel->Send(request)) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) return std::nullopt;
    return Decision{absl::UnavailableError("the daemon is overloaded"), 0, false};
  }
  for (;;) {
    ReplyMessage reply;
    const ssize_t bytes = recv(channel->fd, &reply, sizeof(reply), MSG_DONTWAIT);
    if (bytes == 0 || (bytes < 0 && errno == ECONNRESET)) return std::nullopt;
    if (bytes == sizeof(reply)) {
      const auto outcome = static_cast<SessionBook::Outcome>(reply.outcome);
      // A reply to an earlier question that timed out: the session is given back.
      if (reply.question != request.question) {
        if (outcome == SessionBook::Outcome::kEnter) channel->Send(MessageAbout(reply.session, ""));
        continue;
      }
      if (outcome == SessionBook::Outcome::kEnter) {
        const MutexLock lock(&mutex_);
        open_[reply.session] = tenant;
        // The supervisor that gave the number is gone, and its successor does not know of it. It
        // removes the files of sessions that it does not know.
        if (channel_ != channel &&
            channel_->SendBefore(until, MessageAbout(reply.session, tenant)) ==
                Channel::Sent::kTooLate) {
          open_.erase(reply.session);
          return Decision{absl::UnavailableError("the daemon is overloaded"), 0, false};
        }
      }
      return Decision{WhyNot(reply, tenant), reply.session,
                      outcome == SessionBook::Outcome::kTenantIsFull};
    }
    if (!channel->Await(POLLIN, until)) {
      return Decision{
          absl::UnavailableError("the supervisor did not reply whether one more session may open"),
          0, false};
    }
  }
}

void AdmissionChannel::Leave(uint64_t session) {
  const MutexLock lock(&mutex_);
  open_.erase(session);
  // The supervisor reads all the time. If it does not read, it is gone.
  channel_->Send(MessageAbout(session, ""));
}

void AdmissionChannel::Replace(int channel) {
  const SteadyClock::time_point until = SteadyClock::now() + timeout_;
  {
    const MutexLock lock(&mutex_);
    channel_ = std::make_shared<Channel>(channel);
    bool all = true;
    for (const auto& [session, tenant] : open_)
      all &= channel_->SendBefore(until, MessageAbout(session, tenant)) == Channel::Sent::kYes;
    if (all) channel_->SendBefore(until, MessageAbout(0, ""));
  }
  replaced_.SignalAll();
}

}  // namespace detshare
