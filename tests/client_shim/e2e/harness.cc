#include "tests/client_shim/e2e/harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace detshare::e2e {
namespace {

using Clock = std::chrono::steady_clock;

int MillisecondsLeft(Clock::time_point end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return left > 0 ? static_cast<int>(left) : 0;
}

Strings ChildEnvironment(const Strings& changes) {
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  Strings environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = name_of(*entry);
    bool changed = name.rfind("DETSHARE_", 0) == 0 || name == "LD_LIBRARY_PATH" ||
                   name == "CUDA_VISIBLE_DEVICES";
    for (const std::string& change : changes) changed = changed || name_of(change) == name;
    if (!changed) environment.push_back(*entry);
  }
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    const bool overruled = std::any_of(change + 1, changes.end(), [&](const std::string& later) {
      return name_of(later) == name_of(*change);
    });
    if (!overruled && change->find('=') != std::string::npos) environment.push_back(*change);
  }
  return environment;
}

std::vector<char*> Pointers(const Strings& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string Path(const std::string& file) { return std::filesystem::absolute(file).string(); }

Process::Process(const Strings& command, const Strings& environment) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipes");
  const Strings child_environment = ChildEnvironment(environment);
  const std::vector<char*> argv = Pointers(command), envp = Pointers(child_environment);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

Process::~Process() {
  if (!reaped_ && pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (out_fd_ >= 0) close(out_fd_);
  if (err_fd_ >= 0) close(err_fd_);
}

void Process::Signal(int signal) { kill(pid_, signal); }

bool Process::Pump(int wait_ms) {
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  pollfd fds[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  if (poll(fds, 2, wait_ms) <= 0) return true;
  char buffer[4096];
  for (int i = 0; i < 2; ++i) {
    if (fds[i].revents == 0) continue;
    int& fd = i == 0 ? out_fd_ : err_fd_;
    const ssize_t bytes = read(fd, buffer, sizeof(buffer));
    if (bytes > 0) {
      (i == 0 ? outcome_.out : outcome_.err).append(buffer, bytes);
    } else if (bytes == 0) {
      close(fd);
      fd = -1;
    }
  }
  return true;
}

std::string Process::ReadLine() {
  const auto end = Clock::now() + std::chrono::milliseconds(kTimeoutMs);
  for (;;) {
    const size_t newline = outcome_.out.find('\n', line_begin_);
    if (newline != std::string::npos) {
      const std::string line = outcome_.out.substr(line_begin_, newline - line_begin_);
      line_begin_ = newline + 1;
      return line;
    }
    if (out_fd_ < 0 || MillisecondsLeft(end) == 0) return "";
    Pump(MillisecondsLeft(end));
  }
}

Outcome Process::Wait() {
  const auto end = Clock::now() + std::chrono::milliseconds(kTimeoutMs);
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) break;
    if (MillisecondsLeft(end) == 0) {
      outcome_.timed_out = true;
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      break;
    }
    if (!Pump(10)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  reaped_ = true;
  // Grandchildren may keep the pipes open, so read only what is there.
  for (int i = 0; i < 1000 && (out_fd_ >= 0 || err_fd_ >= 0); ++i) {
    pollfd fds[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
    if (poll(fds, 2, 0) <= 0) break;
    Pump(0);
  }
  outcome_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome_;
}

Outcome Run(const Strings& command, const Strings& environment) {
  return Process(command, environment).Wait();
}

bool Eventually(const std::function<bool()>& condition) {
  const auto end = Clock::now() + std::chrono::milliseconds(kTimeoutMs);
  while (!condition()) {
    if (MillisecondsLeft(end) == 0) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

Daemon::Daemon(const Strings& flags) {
  // The path of a unix socket must be short, and the test's own directory has a long one.
  char name[] = "/dev/shm/detshare-e2e-XXXXXX";
  if (mkdtemp(name) == nullptr) throw std::runtime_error("no directory");
  directory_ = name;
  socket_ = directory_ + "/s";
  Strings command = {Path("server/detshared"),
                     "--socket",
                     socket_,
                     "--backend",
                     "soft",
                     "--soft-memory",
                     "1GiB",
                     "--soft-threads",
                     "2",
                     "--soft-sms",
                     "16",
                     "--staging-mib",
                     "4"};
  command.insert(command.end(), flags.begin(), flags.end());
  process_ = std::make_unique<Process>(command);
  if (!Eventually(
          [this] { return std::filesystem::exists(socket_) || kill(process_->pid(), 0) != 0; })) {
    throw std::runtime_error("detshared does not begin");
  }
}

Daemon::~Daemon() {
  process_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Strings Daemon::Environment() const {
  return {"LD_LIBRARY_PATH=" + ShimDirectory(), "DETSHARE_SOCKET=" + socket_,
          "CUDA_CACHE_PATH=" + directory_ + "/cache"};
}

nlohmann::json Daemon::Status() const {
  const Outcome outcome =
      Run({Path("tools/detsharectl/detsharectl"), "status", "--json", "--socket", socket_});
  if (outcome.exit_code != 0) throw std::runtime_error("detsharectl status: " + outcome.err);
  return nlohmann::json::parse(outcome.out);
}

bool Daemon::Becomes(const std::function<bool(const nlohmann::json&)>& what) const {
  return Eventually([&] { return what(Status()); });
}

Strings Daemon::SessionFiles() const {
  // The daemon may remove a directory while this reads it.
  Strings files;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(directory_ + "/sessions", error), end;
  for (; !error && entry != end; entry.increment(error)) files.push_back(entry->path().string());
  return files;
}

Outcome RunThrough(const Daemon& daemon, const Strings& command, const Strings& options) {
  Strings whole = {Path("tools/detshare/detshare"), "run", "--socket", daemon.socket()};
  whole.insert(whole.end(), options.begin(), options.end());
  whole.push_back("--");
  whole.insert(whole.end(), command.begin(), command.end());
  return Run(whole, {"DETSHARE_LIB_DIR=" + ShimDirectory()});
}

}  // namespace detshare::e2e
