#include "server/engines/spawn.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"

extern char** environ;

namespace detshare {

// posix_spawn runs no code of the daemon in the child, because another thread may hold any lock.
absl::StatusOr<pid_t> Spawn(const std::string& program, std::vector<std::string> command,
                            const std::map<int, int>& descriptors, std::string variable) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  // The service manager's variables are meant for the supervisor only.
  std::vector<std::string_view> own = {
      "NOTIFY_SOCKET=", "WATCHDOG_USEC=", "WATCHDOG_PID=", "LISTEN_FDS=", "LISTEN_PID="};
  if (!variable.empty())
    own.push_back(std::string_view(variable).substr(0, variable.find('=') + 1));
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::none_of(own.begin(), own.end(), [&](std::string_view name) {
          return std::string_view(*each).starts_with(name);
        }))
      environment.push_back(*each);
  }
  if (!variable.empty()) environment.push_back(variable.data());
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  if (const int error = posix_spawn_file_actions_init(&actions); error != 0)
    return absl::ResourceExhaustedError(absl::StrCat("spawn: ", ErrnoText(error)));
  const int end = descriptors.rbegin()->first + 1;
  int error = 0;
  std::vector<int> moved;
  for (const auto& [number, fd] : descriptors) {
    // Moves the descriptor away from the numbers that dup2 overwrites.
    moved.push_back(fcntl(fd, F_DUPFD_CLOEXEC, end));
    if (error == 0 && moved.back() < 0) error = errno;
    if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, moved.back(), number);
  }
  if (error == 0) error = posix_spawn_file_actions_addclosefrom_np(&actions, end);
  pid_t pid = -1;
  if (error == 0) {
    error =
        posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments.data(), environment.data());
  }
  posix_spawn_file_actions_destroy(&actions);
  for (const int fd : moved)
    if (fd >= 0) close(fd);
  if (error != 0) return absl::ResourceExhaustedError(absl::StrCat("spawn: ", ErrnoText(error)));
  return pid;
}

}  // namespace detshare
