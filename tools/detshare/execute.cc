#include "tools/detshare/execute.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace detshare::tools {

int Execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  std::fprintf(stderr, "detshare: cannot execute %s: %s\n", argv[0], std::strerror(error));
  return error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
}

}  // namespace detshare::tools
