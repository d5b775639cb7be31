#include "server/strict/admission_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace detshare {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxName = 64;

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

absl::Status WhyNot(const ReplyMessage& reply, const std::string& tenant) {
  switch (static_cast<SessionBook::Outcome>(reply.outcome)) {
    case SessionBook::Outcome::kEnter:
      return absl::OkStatus();
    case SessionBook::Outcome::kTenantIsFull:
      return absl::ResourceExhaustedError(absl::StrCat(
          "tenant ", tenant, " has ", reply.used, " sessions, of all users together, and may have ",
          reply.limit,
          ": end one of its programs, or let an operator allow more: sessions of the tenant in "
          "the daemon's configuration"));
    case SessionBook::Outcome::kDaemonIsFull:
      return absl::ResourceExhaustedError(
          absl::StrCat("the daemon has ", reply.used, " sessions and may have ", reply.limit,
                       ": end a program, or let an operator raise max_sessions of [daemon] in its "
                       "configuration"));
    case SessionBook::Outcome::kProcessIsFull:
      break;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("this user has ", reply.used, " sessions: end a program"));
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

AdmissionChannel::AdmissionChannel(int channel, std::chrono::milliseconds timeout)
    : channel_(channel), timeout_(timeout) {}

AdmissionChannel::~AdmissionChannel() { close(channel_); }

SessionAdmission::Decision AdmissionChannel::Enter(const std::string& tenant) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RequestMessage request;
  request.question = ++question_;
  std::memcpy(request.tenant, tenant.data(), std::min(tenant.size(), kMaxName));
  if (send(channel_, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(request))
    return {absl::UnavailableError("the daemon ends, or is overloaded"), 0, false};
  const Clock::time_point until = Clock::now() + timeout_;
  for (;;) {
    ReplyMessage reply;
    const ssize_t bytes = recv(channel_, &reply, sizeof(reply), MSG_DONTWAIT);
    if (bytes == 0) return {absl::UnavailableError("the daemon ends"), 0, false};
    if (bytes == sizeof(reply)) {
      const auto outcome = static_cast<SessionBook::Outcome>(reply.outcome);
      if (reply.question == request.question)
        return {WhyNot(reply, tenant), reply.session,
                outcome == SessionBook::Outcome::kTenantIsFull};
      // This is the reply to an earlier question that timed out: give its session back.
      if (outcome == SessionBook::Outcome::kEnter) Leave(reply.session);
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0)
      return {absl::UnavailableError(
                  "the listening process did not reply whether one more session may open"),
              0, false};
    pollfd fd = {channel_, POLLIN, 0};
    poll(&fd, 1, static_cast<int>(left.count()));
  }
}

void AdmissionChannel::Leave(uint64_t session) {
  RequestMessage message;
  message.session = session;
  // The accepting process reads all the time. If it does not read, it is gone.
  [[maybe_unused]] const ssize_t sent =
      send(channel_, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace detshare
