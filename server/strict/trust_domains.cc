#include "server/strict/trust_domains.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"
#include "server/strict/admission_channel.h"
#include "server/strict/domain_channel.h"

extern char** environ;

namespace detshare {
namespace {

// The source of an event of the epoll, in the upper half of its data. The lower half is the user.
enum class Source : uint64_t { kSocket = 0, kChannel = 1, kProcess = 2, kAdmission = 3 };

// A process that ends sooner than this after its beginning has failed. It is not started again for
// as long.
constexpr std::chrono::seconds kSoon(2);
constexpr size_t kMaxWaiting = 512;
constexpr size_t kMaxFailed = 1024;

void Watch(int epoll, int fd, Source source, uid_t user, uint32_t events = EPOLLIN,
           int operation = EPOLL_CTL_ADD) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(source) << 32 | user;
  epoll_ctl(epoll, operation, fd, &event);
}

// Descriptors that a domain's process inherits besides the standard ones.
constexpr int kDomainFd = 3, kAdmissionFd = 4;
// The number of admission requests that are decided in one round, so that one domain cannot keep
// the others waiting.
constexpr int kMaxAtOnce = 64;

// Starts a process of `program`. posix_spawn runs no code of the daemon in the child, because
// another thread may hold any lock.
absl::StatusOr<pid_t> Spawn(const std::string& program, std::vector<std::string> command,
                            int domain_fd, int admission_fd) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  // The service manager's variables are meant for the accepting process only.
  constexpr std::string_view kOwn[] = {
      "NOTIFY_SOCKET=", "WATCHDOG_USEC=", "WATCHDOG_PID=", "LISTEN_FDS=", "LISTEN_PID="};
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::none_of(std::begin(kOwn), std::end(kOwn), [&](std::string_view own) {
          return std::string_view(*variable).starts_with(own);
        }))
      environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  if (const int error = posix_spawn_file_actions_init(&actions); error != 0)
    return absl::ResourceExhaustedError(absl::StrCat("spawn: ", ErrnoText(error)));
  // Moves the descriptor away from kDomainFd, which the first dup2 overwrites.
  const int moved = fcntl(admission_fd, F_DUPFD_CLOEXEC, kAdmissionFd + 1);
  int error = moved < 0 ? errno : 0;
  if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, domain_fd, kDomainFd);
  if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, moved, kAdmissionFd);
  if (error == 0) error = posix_spawn_file_actions_addclosefrom_np(&actions, kAdmissionFd + 1);
  pid_t pid = -1;
  if (error == 0) {
    error =
        posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments.data(), environment.data());
  }
  posix_spawn_file_actions_destroy(&actions);
  if (moved >= 0) close(moved);
  if (error != 0) return absl::ResourceExhaustedError(absl::StrCat("spawn: ", ErrnoText(error)));
  return pid;
}

DomainEnd EndOf(int status) {
  if (!WIFEXITED(status)) return DomainEnd::kFailed;
  if (WEXITSTATUS(status) == kExitDeviceLost) return DomainEnd::kDeviceLost;
  return WEXITSTATUS(status) == 0 ? DomainEnd::kAsked : DomainEnd::kFailed;
}

std::string Ending(int status) {
  if (EndOf(status) == DomainEnd::kDeviceLost) return "has lost its device";
  if (WIFSIGNALED(status)) return absl::StrCat("was ended by signal ", WTERMSIG(status));
  return absl::StrCat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

TrustDomains::TrustDomains(Options options)
    : options_(std::move(options)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  fcntl(options_.listen_fd, F_SETFL, fcntl(options_.listen_fd, F_GETFL) | O_NONBLOCK);
  Watch(epoll_, options_.listen_fd, Source::kSocket, 0);
  book_.SetLimits(options_.limits);
}

TrustDomains::~TrustDomains() {
  for (auto& [user, domain] : domains_) {
    Notify(domain);
    kill(domain.pid, SIGKILL);
    waitpid(domain.pid, nullptr, 0);
    close(domain.process);
    close(domain.admission);
    for (const int connection : domain.waiting) close(connection);
  }
  close(epoll_);
}

void TrustDomains::Proceed() {
  epoll_event events[16];
  const int count = epoll_wait(epoll_, events, 16, 0);
  for (int i = 0; i < count; ++i) {
    const auto source = static_cast<Source>(events[i].data.u64 >> 32);
    if (source == Source::kSocket) {
      Accept();
      continue;
    }
    const auto domain = domains_.find(static_cast<uid_t>(events[i].data.u64 & UINT32_MAX));
    if (domain == domains_.end()) continue;
    if (source == Source::kProcess) Reap(domain);
    if (source == Source::kChannel) HandleMessage(domain->first, domain->second);
    if (source == Source::kAdmission) Decide(domain->second);
  }
}

void TrustDomains::Accept() {
  const int connection =
      accept4(options_.listen_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection < 0) {
    // If the process is out of descriptors, the connection waits in the queue until some are free.
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      LogWarning("cannot accept a connection: ", ErrnoText(errno));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return;
  }
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    close(connection);
    return;
  }
  // A daemon that serves only its own user refuses other users in that user's domain, with the
  // reason.
  Pass(geteuid() == 0 ? peer.uid : geteuid(), connection);
}

void TrustDomains::Pass(uid_t user, int connection) {
  auto domain = domains_.find(user);
  if (domain == domains_.end()) {
    const auto failed = failed_.find(user);
    if (failed != failed_.end() && Clock::now() - failed->second < kSoon) {
      close(connection);
      return;
    }
    failed_.erase(user);
    Domain fresh;
    if (const absl::Status begun = Begin(user, &fresh); !begun.ok()) {
      LogError("no process for user ", user, ": ", std::string(begun.message()));
      close(connection);
      return;
    }
    domain = domains_.emplace(user, std::move(fresh)).first;
  }
  if (domain->second.waiting.size() >= kMaxWaiting) {
    close(connection);
    return;
  }
  domain->second.waiting.push_back(connection);
  Flush(user, domain->second);
}

void TrustDomains::Flush(uid_t user, Domain& domain) {
  if (domain.channel < 0) return;
  while (!domain.waiting.empty() && PassConnection(domain.channel, domain.waiting.front()).ok()) {
    close(domain.waiting.front());
    domain.waiting.pop_front();
    ++domain.sent;
  }
  // A process that has just begun reads later: its connections stay in `waiting`.
  if (domain.full == !domain.waiting.empty()) return;
  domain.full = !domain.full;
  const uint32_t events = domain.full ? EPOLLIN | EPOLLOUT : EPOLLIN;
  Watch(epoll_, domain.channel, Source::kChannel, user, events, EPOLL_CTL_MOD);
}

absl::Status TrustDomains::Begin(uid_t user, Domain* domain) {
  DETSHARE_ASSIGN_OR_RETURN(DomainChannel channel, MakeDomainChannel());
  absl::StatusOr<DomainChannel> admission = MakeDomainChannel();
  if (!admission.ok()) {
    close(channel.acceptor);
    close(channel.domain);
    return admission.status();
  }
  std::vector<std::string> command = options_.command;
  for (const std::string& more :
       {std::string("--domain"), absl::StrCat(user), std::string("--domain-fd"),
        absl::StrCat(kDomainFd), std::string("--admission-fd"), absl::StrCat(kAdmissionFd)}) {
    command.push_back(more);
  }
  const absl::StatusOr<pid_t> begun =
      Spawn(options_.program.empty() ? "/proc/self/exe" : options_.program, std::move(command),
            channel.domain, admission->domain);
  close(channel.domain);
  close(admission->domain);
  const pid_t pid = begun.value_or(-1);
  const int process = begun.ok() ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1;
  if (process < 0) {
    close(channel.acceptor);
    close(admission->acceptor);
    if (!begun.ok()) return begun.status();
    const absl::Status status = absl::InternalError(absl::StrCat("pidfd: ", ErrnoText(errno)));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return status;
  }
  domain->pid = pid;
  domain->process = process;
  domain->channel = channel.acceptor;
  domain->admission = admission->acceptor;
  domain->begun = Clock::now();
  Watch(epoll_, domain->process, Source::kProcess, user);
  Watch(epoll_, domain->channel, Source::kChannel, user);
  Watch(epoll_, domain->admission, Source::kAdmission, user);
  LogInfo("user ", user, " has a process of its own: pid ", pid);
  if (options_.begun) options_.begun(user, pid);
  return absl::OkStatus();
}

void TrustDomains::Notify(Domain& domain) {
  if (domain.channel < 0) return;
  close(domain.channel);  // closing removes it from the epoll
  domain.channel = -1;
}

void TrustDomains::HandleMessage(uid_t user, Domain& domain) {
  if (domain.channel < 0) return;
  Flush(user, domain);
  char byte;
  if (recv(domain.channel, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return Notify(domain);
  const std::optional<uint64_t> received = TakeOffer(domain.channel);
  if (received.has_value() && *received == domain.sent && domain.waiting.empty()) Notify(domain);
}

void TrustDomains::Decide(Domain& domain) {
  for (int i = 0; i < kMaxAtOnce; ++i) {
    const std::optional<AdmissionRequest> request = TakeAdmissionRequest(domain.admission);
    if (!request.has_value()) break;
    if (request->question == 0) {
      book_.Leave(domain.pid, request->session);
    } else {
      SendAdmissionReply(domain.admission, request->question,
                         book_.Enter(domain.pid, request->tenant));
    }
  }
  // The channel was closed by a process that ends: it sends no more requests.
  char byte;
  if (recv(domain.admission, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
    epoll_ctl(epoll_, EPOLL_CTL_DEL, domain.admission, nullptr);
}

void TrustDomains::Reap(Domains::iterator domain) {
  int status = 0;
  if (waitpid(domain->second.pid, &status, WNOHANG) != domain->second.pid) return;
  const uid_t user = domain->first;
  const DomainEnd how = EndOf(status);
  const bool clean = how == DomainEnd::kAsked;
  if (options_.ended) options_.ended(user, domain->second.pid, how);
  if (clean) {
    LogInfo("the process of user ", user, " has ended");
  } else {
    LogError("the process of user ", user, " ", Ending(status), "; other users are not affected");
  }
  Notify(domain->second);
  book_.Forget(domain->second.pid);
  close(domain->second.process);
  close(domain->second.admission);
  if (!clean && Clock::now() - domain->second.begun < kSoon) {
    if (failed_.size() >= kMaxFailed) failed_.clear();
    failed_[user] = Clock::now();
  }
  const std::deque<int> waiting = std::move(domain->second.waiting);
  domains_.erase(domain);
  if (!options_.directory.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(absl::StrCat(options_.directory, "/", user), ignored);
  }
  for (const int connection : waiting) {
    if (ending_) {
      close(connection);
    } else {
      Pass(user, connection);
    }
  }
}

void TrustDomains::Signal(int signal) {
  for (const auto& [user, domain] : domains_) kill(domain.pid, signal);
}

bool TrustDomains::End(std::chrono::milliseconds timeout) {
  ending_ = true;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, options_.listen_fd, nullptr);
  for (auto& [user, domain] : domains_) Notify(domain);
  const Clock::time_point until = Clock::now() + timeout;
  while (!domains_.empty()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    epoll_event event;
    if (epoll_wait(epoll_, &event, 1, static_cast<int>(left.count())) > 0) Proceed();
  }
  return true;
}

}  // namespace detshare
