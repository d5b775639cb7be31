#include "tools/detshare/launch.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tools/detshare/execute.h"
#include "tools/detshare/standalone.h"

namespace detshare::tools {
namespace {

constexpr char kShim[] = "libcuda.so.1";

std::string Join(const std::vector<std::string>& parts, const char* separator) {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : separator) + part;
  return joined;
}

// 32 random hexadecimal digits, so that no other run has the same name.
std::string RandomName() {
  unsigned char bytes[16] = {};
  std::string name;
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return std::to_string(getpid());
  for (const unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

void SetEnvironment(const RunOptions& options, const std::string& shim_directory) {
  std::string path = shim_directory;
  if (const char* old = std::getenv("LD_LIBRARY_PATH"); old != nullptr && *old != '\0') {
    path += ":";
    path += old;
  }
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  // The program may change its working directory.
  if (!options.socket.empty()) {
    setenv("DETSHARE_SOCKET", std::filesystem::absolute(options.socket).c_str(), 1);
  }
  if (!options.tenant.empty()) setenv("DETSHARE_TENANT", options.tenant.c_str(), 1);
  if (!options.devices.empty()) setenv("DETSHARE_DEVICES", Join(options.devices, ",").c_str(), 1);
  if (!options.device_count.empty())
    setenv("DETSHARE_DEVICE_COUNT", options.device_count.c_str(), 1);
  // Processes with the same DETSHARE_RUN get the same devices. A launcher that the program starts
  // keeps the name, unless it asks for other devices.
  const bool others = !options.devices.empty() || !options.device_count.empty();
  setenv("DETSHARE_RUN", RandomName().c_str(), /*overwrite=*/others ? 1 : 0);
  if (!options.log_level.empty()) setenv("DETSHARE_LOG", options.log_level.c_str(), 1);
}

// Sets the variable to the file's absolute path and empties the file. The program's processes
// append lines to it, and their working directories may differ. False after a message.
bool SetOutput(const char* variable, const std::string& path) {
  if (path.empty()) return true;
  if (path == "-") {
    setenv(variable, "-", 1);
    return true;
  }
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    std::fprintf(stderr, "detshare: cannot write %s: %s\n", path.c_str(), std::strerror(errno));
    return false;
  }
  close(fd);
  char* absolute = realpath(path.c_str(), nullptr);
  setenv(variable, absolute != nullptr ? absolute : path.c_str(), 1);
  std::free(absolute);
  return true;
}

}  // namespace

std::string OwnDirectory() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) return ".";
  const std::string text(path, static_cast<size_t>(length));
  return text.substr(0, text.rfind('/'));
}

std::vector<std::string> ShimDirectories(const std::string& own_directory) {
  if (const char* set = std::getenv("DETSHARE_LIB_DIR"); set != nullptr && *set != '\0')
    return {set};
  return {own_directory + "/../lib/detshare", own_directory + "/../lib/x86_64-linux-gnu/detshare",
          own_directory + "/../../client_shim"};
}

std::string FindShim(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    if (access((directory + "/" + kShim).c_str(), R_OK) == 0) return directory;
  }
  return "";
}

std::vector<std::string> DaemonPaths(const std::string& own_directory) {
  if (const char* set = std::getenv("DETSHARE_DAEMON"); set != nullptr && *set != '\0')
    return {set};
  return {own_directory + "/detshared", own_directory + "/../sbin/detshared",
          own_directory + "/../../server/detshared"};
}

int Run(const RunOptions& options) {
  const std::string own_directory = OwnDirectory();
  const std::vector<std::string> directories = ShimDirectories(own_directory);
  const std::string found = FindShim(directories);
  if (found.empty()) {
    std::fprintf(stderr,
                 "detshare: DetShare's %s is not in %s\n"
                 "detshare: set DETSHARE_LIB_DIR to the directory that holds it\n",
                 kShim, Join(directories, " or ").c_str());
    return kExitLauncher;
  }
  char* resolved = realpath(found.c_str(), nullptr);
  SetEnvironment(options, resolved != nullptr ? resolved : found);
  std::free(resolved);
  if (!SetOutput("DETSHARE_DIGEST", options.digest) ||
      !SetOutput("DETSHARE_DIGEST_LOG", options.digest_log)) {
    return kExitLauncher;
  }
  if (options.standalone.empty()) return Execute(options.command);
  return RunStandalone(options, DaemonPaths(own_directory));
}

}  // namespace detshare::tools
