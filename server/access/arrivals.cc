#include "server/access/arrivals.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "proto/preamble.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

// The upper bits of an epoll event's data name its kind. The lower bits are a number.
constexpr uint64_t kSocket = uint64_t{1} << 62, kTimer = uint64_t{2} << 62;

// How long nothing is accepted once the process has no descriptor for a connection. Its thread may
// have other work, and does not wait meanwhile.
constexpr std::chrono::milliseconds kPause(100);

enum class Opening { kNothingYet, kClient, kOperator, kWrong };

// Tells what a connection is for by the `bytes` that it has sent so far, of which `preamble` has
// the first ones.
Opening OpeningOf(const Preamble& preamble, size_t bytes) {
  // gRPC reads the rest of HTTP/2's preface.
  if (bytes > 0 && preamble.magic[0] == 'P') return Opening::kOperator;
  const size_t magic = std::min(bytes, sizeof(preamble.magic));
  if (std::memcmp(preamble.magic, Preamble::kMagic, magic) != 0) return Opening::kWrong;
  if (bytes < sizeof(preamble)) return Opening::kNothingYet;
  const bool sound =
      preamble.version == Preamble::kVersion && preamble.tenant_bytes <= sizeof(preamble.tenant);
  return sound ? Opening::kClient : Opening::kWrong;
}

}  // namespace

Arrivals::Arrivals(Take take) : Arrivals(std::move(take), Limits()) {}

Arrivals::Arrivals(Take take, Limits limits)
    : take_(std::move(take)),
      limits_(limits),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTimer;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, timer_, &event);
}

Arrivals::~Arrivals() {
  for (const auto& [number, silent] : silent_) close(silent.fd);
  close(timer_);
  close(epoll_);
}

void Arrivals::Listen(int listen_fd, std::shared_ptr<const TenantEndpoint> endpoint) {
  sockets_[listen_fd] = std::move(endpoint);
  // Another process that has the socket, too, may take a connection first.
  fcntl(listen_fd, F_SETFL, fcntl(listen_fd, F_GETFL) | O_NONBLOCK);
  Watch(listen_fd, EPOLL_CTL_ADD, resume_at_.has_value() ? 0 : uint32_t{EPOLLIN});
}

void Arrivals::Watch(int listen_fd, int operation, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = kSocket | static_cast<uint64_t>(listen_fd);
  epoll_ctl(epoll_, operation, listen_fd, &event);
}

void Arrivals::Pause() {
  resume_at_ = Clock::now() + kPause;
  for (const auto& [listen_fd, endpoint] : sockets_) Watch(listen_fd, EPOLL_CTL_MOD, 0);
  SetTimer();
}

void Arrivals::Resume(Clock::time_point now) {
  if (!resume_at_.has_value() || now < *resume_at_) return;
  resume_at_.reset();
  for (const auto& [listen_fd, endpoint] : sockets_) Watch(listen_fd, EPOLL_CTL_MOD, EPOLLIN);
}

void Arrivals::Leave(int listen_fd) {
  epoll_ctl(epoll_, EPOLL_CTL_DEL, listen_fd, nullptr);
  sockets_.erase(listen_fd);
  for (auto one = silent_.begin(); one != silent_.end();) {
    const auto next = std::next(one);
    if (one->second.listen_fd == listen_fd) Close(one);
    one = next;
  }
  SetTimer();
}

void Arrivals::Proceed() {
  epoll_event events[16];
  const int count = epoll_wait(epoll_, events, 16, 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t about = events[i].data.u64;
    if (about == kTimer) {
      HandleTimer();
    } else if ((about & kSocket) != 0) {
      Accept(static_cast<int>(about & ~kSocket));
    } else {
      Look(about, (events[i].events & (EPOLLRDHUP | EPOLLHUP)) != 0);
    }
  }
}

void Arrivals::Accept(int listen_fd) {
  const auto socket = sockets_.find(listen_fd);
  if (socket == sockets_.end() || resume_at_.has_value()) return;
  const int fd = accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    // If the process is out of descriptors, the connection waits in the queue until some are free.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      LogWarning("cannot accept a connection: ", ErrnoText(errno));
      if (!silent_.empty()) Close(silent_.begin());
      Pause();
    }
    return;
  }
  std::optional<Peer> peer = ReadPeer(fd);
  if (!peer.has_value()) {
    close(fd);
    return;
  }
  peer->endpoint = socket->second;
  const ConnectionHolder holder = HolderOf(*peer);
  if (const auto count = counts_.find(holder);
      count != counts_.end() && count->second >= limits_.silent) {
    Close(std::find_if(silent_.begin(), silent_.end(),
                       [&](const auto& one) { return HolderOf(one.second.peer) == holder; }));
  } else if (silent_.size() >= limits_.all_silent) {
    Close(silent_.begin());
  }
  ++counts_[holder];
  const uint64_t number = next_++;
  silent_[number] = {fd, listen_fd, *std::move(peer), Clock::now() + limits_.timeout};
  // Edge-triggered, because bytes of which there are too few stay in the socket.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.u64 = number;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  if (silent_.size() == 1) SetTimer();
}

void Arrivals::Look(uint64_t number, bool over) {
  const auto silent = silent_.find(number);
  if (silent == silent_.end()) return;
  Preamble preamble;
  const int fd = silent->second.fd;
  const ssize_t bytes = recv(fd, &preamble, sizeof(preamble), MSG_PEEK | MSG_DONTWAIT);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const Opening opening =
      bytes <= 0 ? Opening::kWrong : OpeningOf(preamble, static_cast<size_t>(bytes));
  if (opening == Opening::kNothingYet && !over) return;
  if (opening == Opening::kWrong || opening == Opening::kNothingYet) return Close(silent);
  std::optional<std::string> wish;
  if (opening == Opening::kClient) {
    // The bytes are there, so this takes all of them.
    if (recv(fd, &preamble, sizeof(preamble), MSG_DONTWAIT) != sizeof(preamble))
      return Close(silent);
    wish.emplace(preamble.tenant, std::min<size_t>(preamble.tenant_bytes, sizeof(preamble.tenant)));
  }
  Peer peer = silent->second.peer;  // Release() looks at it, too
  take_(Release(silent), std::move(peer), std::move(wish));
}

int Arrivals::Release(std::map<uint64_t, Silent>::iterator silent) {
  const int fd = silent->second.fd;
  // The descriptor may live on in another process. It must not be in the epoll then.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  const auto count = counts_.find(HolderOf(silent->second.peer));
  if (--count->second == 0) counts_.erase(count);
  silent_.erase(silent);
  return fd;
}

void Arrivals::Close(std::map<uint64_t, Silent>::iterator silent) { close(Release(silent)); }

void Arrivals::HandleTimer() {
  uint64_t times = 0;
  [[maybe_unused]] const ssize_t got = read(timer_, &times, sizeof(times));
  const Clock::time_point now = Clock::now();
  Resume(now);
  CloseLate(now);
  SetTimer();
}

void Arrivals::CloseLate(Clock::time_point now) {
  while (!silent_.empty() && silent_.begin()->second.until <= now) Close(silent_.begin());
}

// The timer may be early, when the connection that it was set for has gone. HandleTimer() sets it
// again then.
void Arrivals::SetTimer() {
  std::optional<Clock::time_point> next = resume_at_;
  if (!silent_.empty()) {
    const Clock::time_point until = silent_.begin()->second.until;
    next = std::min(next.value_or(until), until);
  }
  itimerspec timer{};  // off
  if (next.has_value()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::nanoseconds>(*next - Clock::now()).count();
    const int64_t wait = std::max<int64_t>(left, 1);
    timer.it_value = {wait / 1'000'000'000, wait % 1'000'000'000};
  }
  timerfd_settime(timer_, 0, &timer, nullptr);
}

}  // namespace detshare
