#include "tools/detshare/launch.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/detshare/standalone.h"

namespace detshare::tools {
namespace {

constexpr char kShim[] = "libcuda.so.1";

std::string OwnDirectory() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) return ".";
  const std::string text(path, static_cast<size_t>(length));
  return text.substr(0, text.rfind('/'));
}

std::string Join(const std::vector<std::string>& parts, const char* separator) {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : separator) + part;
  return joined;
}

std::string FindShim(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    if (access((directory + "/" + kShim).c_str(), R_OK) == 0) return directory;
  }
  return "";
}

void SetEnvironment(const RunOptions& options, const std::string& shim_directory) {
  std::string path = shim_directory;
  if (const char* old = std::getenv("LD_LIBRARY_PATH"); old != nullptr && *old != '\0') {
    path += ":";
    path += old;
  }
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  if (!options.socket.empty()) setenv("DETSHARE_SOCKET", options.socket.c_str(), 1);
  if (!options.tenant.empty()) setenv("DETSHARE_TENANT", options.tenant.c_str(), 1);
  if (!options.devices.empty()) setenv("DETSHARE_DEVICES", Join(options.devices, ",").c_str(), 1);
  if (!options.log_level.empty()) setenv("DETSHARE_LOG", options.log_level.c_str(), 1);
}

}  // namespace

std::vector<std::string> ShimDirectories(const std::string& own_directory) {
  if (const char* set = std::getenv("DETSHARE_LIB_DIR"); set != nullptr && *set != '\0')
    return {set};
  return {own_directory + "/../lib/detshare", own_directory + "/../../client_shim"};
}

std::vector<std::string> DaemonPaths(const std::string& own_directory) {
  if (const char* set = std::getenv("DETSHARE_DAEMON"); set != nullptr && *set != '\0')
    return {set};
  return {own_directory + "/detshared", own_directory + "/../../server/detshared"};
}

int Execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  std::fprintf(stderr, "detshare: cannot execute %s: %s\n", argv[0], std::strerror(error));
  return error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
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
  if (options.standalone.empty()) return Execute(options.command);
  return RunStandalone(options, DaemonPaths(own_directory));
}

}  // namespace detshare::tools
