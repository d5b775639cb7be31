// A tmpfs file without a name, as a client that shares memory has it.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>

#include "server/shared_memory/client_file.h"

namespace detshare {

// The file, and the mapping by which this process names it to the daemon.
struct UnnamedFile {
  static constexpr uint64_t kBytes = 8192;

  UnnamedFile() : fd(memfd_create("shared", MFD_CLOEXEC)) {
    REQUIRE(fd >= 0);
    REQUIRE(ftruncate(fd, kBytes) == 0);
    REQUIRE(pwrite(fd, "mine", 4, 4096) == 4);
    struct stat file;
    REQUIRE(fstat(fd, &file) == 0);
    mapping.pid = getpid();
    mapping.uid = geteuid();
    // This process has no such mapping, so only the descriptor leads to the file.
    mapping.begin = 4096;
    mapping.end = 8192;
    mapping.device = file.st_dev;
    mapping.inode = file.st_ino;
    mapping.descriptor = fd;
  }
  ~UnnamedFile() { close(fd); }

  const int fd;
  ClientMapping mapping;
};

}  // namespace detshare
