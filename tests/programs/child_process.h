// A child process, and a line between it and its parent. If one of them ends early, the other's next
// Receive() fails, so a program with a fault ends instead of waiting for ever.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "check.h"

// The pipes to the other process.
struct Line {
  int in = -1, out = -1;

  template <typename T>
  void Send(const T& value) const {
    REQUIRE(write(out, &value, sizeof(value)) == sizeof(value));
  }
  template <typename T>
  T Receive() const {
    T value;
    REQUIRE(read(in, &value, sizeof(value)) == sizeof(value));
    return value;
  }
};

class ChildProcess {
 public:
  // Forks. The child calls `work` with its line to the parent, and ends with the exit code that
  // `work` returns.
  explicit ChildProcess(int (*work)(const Line& parent)) {
    int down[2], up[2];
    REQUIRE(pipe(down) == 0 && pipe(up) == 0);
    std::fflush(stdout);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      close(down[1]);
      close(up[0]);
      std::_Exit(work({down[0], up[1]}));
    }
    close(down[0]);
    close(up[1]);
    line_ = {up[0], down[1]};
  }

  const Line& line() const { return line_; }

  // Waits until the child has ended with exit code 0.
  void Await() const {
    int status = -1;
    REQUIRE(waitpid(pid_, &status, 0) == pid_);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }

 private:
  pid_t pid_ = -1;
  Line line_;
};
