// How a supervisor begins engines, adopts those of an earlier one, and ends their processes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engines/engine_users.h"

namespace detshare {

// A supervisor's ends of the channels to an engine. Whoever gets them owns them.
struct SupervisorEnds {
  int messages = -1;   // engine_channel.h
  int admission = -1;  // admission_channel.h
  int files = -1;      // file_channel.h
};

struct LaunchedEngine {
  pid_t pid = -1;
  int process = -1;  // a pidfd of it, which the caller owns
  SupervisorEnds channels;
};

struct EngineLaunch {
  std::string program;               // the executable; "": this process's own
  std::vector<std::string> command;  // its command line, without what follows from the fields below
  std::string group;                 // "": a spare engine
  std::string directory;             // the name of its directory
  EngineUser user;                   // uid 0: this process's
};

// Begins an engine, which is a child of this process.
absl::StatusOr<LaunchedEngine> LaunchEngine(const EngineLaunch& launch);

// Becomes the supervisor of a running engine. `directory` is the path of its directory, `process` a pidfd
// of it. Waits for an engine that has just begun.
absl::StatusOr<SupervisorEnds> AdoptEngine(const std::string& directory, pid_t pid, int process);

// Whether an engine uses the directory of that path. An engine that ends keeps its socket until it has
// removed its files.
bool EngineUses(const std::string& directory);

// `process`: a pidfd.
void SendSignal(int process, int signal);
// Waits until the process has ended, and not longer than `until`. Returns whether it has ended.
bool AwaitProcessEnd(int process, std::chrono::steady_clock::time_point until);

}  // namespace detshare
