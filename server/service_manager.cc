#include "server/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace detshare {
namespace {

constexpr int kFirstPassed = 3;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Returns whether a variable names this process. A forked child inherits its parent's variables.
bool MeansThisProcess(const std::string& pid) {
  int64_t number = 0;
  return absl::SimpleAtoi(pid, &number) && number == getpid();
}

bool IsSet(int fd, int option, int wanted) {
  int value = 0;
  socklen_t length = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 && value == wanted;
}

}  // namespace

ServiceManager ServiceManager::FromEnvironment() {
  uint64_t microseconds = 0;
  const std::string pid = Variable("WATCHDOG_PID");
  if (!absl::SimpleAtoi(Variable("WATCHDOG_USEC"), &microseconds) ||
      microseconds > uint64_t{INT64_MAX} || (!pid.empty() && !MeansThisProcess(pid)))
    microseconds = 0;
  return ServiceManager(Variable("NOTIFY_SOCKET"),
                        std::chrono::microseconds(static_cast<int64_t>(microseconds)));
}

ServiceManager::ServiceManager(std::string address, std::chrono::microseconds watchdog)
    : address_(std::move(address)), watchdog_(watchdog) {}

void ServiceManager::Reloading() const {
  // Sends the time of the beginning, so that an earlier Ready() is not taken for the end of the
  // reload.
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=",
                    int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000));
}

void ServiceManager::Say(std::string_view status) const {
  std::string line = "STATUS=" + std::string(status);
  for (char& c : line) {
    if (c == '\n') c = ' ';  // a newline would begin another variable
  }
  Send(line);
}

void ServiceManager::Send(std::string_view message) const {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (address_.size() < 2 || address_.size() >= sizeof(to.sun_path) ||
      (address_[0] != '/' && address_[0] != '@'))
    return;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  [[maybe_unused]] const ssize_t sent = sendto(fd, message.data(), message.size(), MSG_NOSIGNAL,
                                               reinterpret_cast<const sockaddr*>(&to), length);
  close(fd);
}

absl::StatusOr<std::optional<PassedSocket>> TakePassedSocket() {
  int count = 0;
  if (!MeansThisProcess(Variable("LISTEN_PID")) ||
      !absl::SimpleAtoi(Variable("LISTEN_FDS"), &count) || count <= 0)
    return std::nullopt;
  if (count != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the service manager hands over ", count, " sockets; detshared takes one"));
  }
  sockaddr_un address{};
  socklen_t length = sizeof(address);
  if (getsockname(kFirstPassed, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      address.sun_family != AF_UNIX || !IsSet(kFirstPassed, SO_TYPE, SOCK_STREAM) ||
      !IsSet(kFirstPassed, SO_ACCEPTCONN, 1)) {
    return absl::InvalidArgumentError(
        "the service manager hands over something else than a listening unix stream socket");
  }
  if (length <= offsetof(sockaddr_un, sun_path) || address.sun_path[0] != '/') {
    return absl::InvalidArgumentError(
        "the socket of the service manager has no path: clients find the files of their sessions "
        "beside the socket");
  }
  fcntl(kFirstPassed, F_SETFD, FD_CLOEXEC);
  const size_t room = length - offsetof(sockaddr_un, sun_path);
  return PassedSocket{kFirstPassed, std::string(address.sun_path, strnlen(address.sun_path, room))};
}

}  // namespace detshare
