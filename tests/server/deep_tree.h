// A directory that has more levels than a process has descriptors.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace detshare {

// Makes `levels` directories in each other below the directory `path`, with a file and a link in
// each. Returns the number of levels made.
inline int MakeDeepTree(const std::string& path, int levels) {
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int made = 0;
  while (made < levels && fd >= 0 && mkdirat(fd, "d", 0755) == 0) {
    ++made;
    const int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(fd);
    fd = next;
    close(openat(fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    symlinkat("..", fd, "link");
  }
  if (fd >= 0) close(fd);
  return made;
}

// Lets this process open so many further descriptors at most, as long as it lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 0;
    // New descriptors get the lowest free numbers.
    std::vector<int> free;
    for (rlim_t i = 0; i < count; ++i) free.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (const int fd : free) {
      few.rlim_cur = static_cast<rlim_t>(fd) + 1;
      close(fd);
    }
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace detshare
