// Starts daemons and programs as real processes, for tests of the whole system.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace detshare::e2e {

// Long enough for a loaded machine with sanitizers. A working test never takes this long.
inline constexpr int kTimeoutMs = 120'000;

// A file of the test's runfiles, as an absolute path.
std::string Path(const std::string& file);
inline std::string ShimDirectory() { return Path("client_shim"); }
inline std::string ClientProgram() { return Path("tests/client_shim/e2e/client_program"); }
inline std::string LinkedProgram() { return Path("tests/client_shim/e2e/linked"); }

using Strings = std::vector<std::string>;

struct Outcome {
  int exit_code = -1;  // 128 + the signal that killed it
  bool timed_out = false;
  std::string out, err;
};

// A running child. The destructor kills it if it still runs.
class Process {
 public:
  // `environment` ("NAME=value") replaces the test's own values. A name without "=" is removed. If
  // a name occurs several times, the last entry counts.
  explicit Process(const Strings& command, const Strings& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Waits for a whole line on stdout and returns it without its end. Returns "" if the output ended
  // before.
  std::string ReadLine();
  void Signal(int signal);
  // Waits for the end of the process. If that takes too long, kills it and sets timed_out.
  Outcome Wait();

 private:
  // Reads what both pipes have, and waits at most `wait_ms` for it. Returns false if both have
  // ended.
  bool Pump(int wait_ms);

  pid_t pid_ = -1;
  int out_fd_ = -1, err_fd_ = -1;
  bool reaped_ = false;
  Outcome outcome_;
  size_t line_begin_ = 0;
};

Outcome Run(const Strings& command, const Strings& environment = {});

// detshared with the software GPU, in its own directory.
class Daemon {
 public:
  explicit Daemon(const Strings& flags = {});
  ~Daemon();

  const std::string& directory() const { return directory_; }
  const std::string& socket() const { return socket_; }
  pid_t pid() const { return process_->pid(); }
  // The environment with which a program finds the shim and this daemon. Its caches are in the
  // daemon's directory.
  Strings Environment() const;

  nlohmann::json Status() const;
  // Waits until the condition holds for the daemon's status. Returns false if the timeout ends
  // first.
  bool Becomes(const std::function<bool(const nlohmann::json&)>& what) const;
  // The existing files of sessions.
  Strings SessionFiles() const;

  void Signal(int signal) { process_->Signal(signal); }
  Outcome Wait() { return process_->Wait(); }

 private:
  std::string directory_, socket_;
  std::unique_ptr<Process> process_;
};

// Runs a program under `detshare run` with this daemon.
Outcome RunThrough(const Daemon& daemon, const Strings& command, const Strings& options = {});

// Checks `condition` until it holds. Returns false if the timeout ends first.
bool Eventually(const std::function<bool()>& condition);

}  // namespace detshare::e2e
