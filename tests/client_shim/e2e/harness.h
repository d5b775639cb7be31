// Daemons and programs as real processes, for tests of everything together.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace detshare::e2e {

// Long enough for a loaded machine with sanitizers; nothing that works takes it.
inline constexpr int kTimeoutMs = 120'000;

// A file of the test's runfiles, as an absolute path.
std::string Path(const std::string& file);
inline std::string ShimDirectory() { return Path("client_shim"); }
inline std::string ClientProgram() { return Path("tests/client_shim/e2e/client_program"); }
inline std::string LinkedProgram() { return Path("tests/client_shim/e2e/linked"); }

using Strings = std::vector<std::string>;

struct Outcome {
  int exit_code = -1;  // 128 + signal when it was killed
  bool timed_out = false;
  std::string out, err;
};

// A running child. Killed when it still runs at the end.
class Process {
 public:
  // `environment` ("NAME=value") replaces what the test has of these names; a name without "=" is
  // taken away. Of several changes of one name the last counts.
  explicit Process(const Strings& command, const Strings& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Waits until a whole line came on stdout, and returns it without its end. "" when the output
  // ended before.
  std::string ReadLine();
  void Signal(int signal);
  // Waits for its end; kills it, with timed_out set, when that takes too long.
  Outcome Wait();

 private:
  // Takes what is there of both pipes, waiting at most `wait_ms`. False when both are at their end.
  bool Pump(int wait_ms);

  pid_t pid_ = -1;
  int out_fd_ = -1, err_fd_ = -1;
  bool reaped_ = false;
  Outcome outcome_;
  size_t line_begin_ = 0;
};

Outcome Run(const Strings& command, const Strings& environment = {});

// detshared with the software GPU in a directory of its own.
class Daemon {
 public:
  explicit Daemon(const Strings& flags = {});
  ~Daemon();

  const std::string& directory() const { return directory_; }
  const std::string& socket() const { return socket_; }
  pid_t pid() const { return process_->pid(); }
  // What a program needs to find the shim and this daemon; its caches are the daemon's own.
  Strings Environment() const;

  nlohmann::json Status() const;
  // Whether the status becomes what is asked for.
  bool Becomes(const std::function<bool(const nlohmann::json&)>& what) const;
  // Files of sessions that are there.
  Strings SessionFiles() const;

  void Signal(int signal) { process_->Signal(signal); }
  Outcome Wait() { return process_->Wait(); }

 private:
  std::string directory_, socket_;
  std::unique_ptr<Process> process_;
};

// `detshare run` with this daemon.
Outcome RunThrough(const Daemon& daemon, const Strings& command, const Strings& options = {});

// Keeps asking until `condition` holds. False when the timeout ends.
bool Eventually(const std::function<bool()>& condition);

}  // namespace detshare::e2e
