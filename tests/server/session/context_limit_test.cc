// Limits of contexts (cuCtxSetLimit) on a device whose sessions share them.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "proto/wire/context.h"
#include "server/base/logging.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/instant_device.h"

namespace detshare {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint32_t kMallocHeap = 2;  // CU_LIMIT_MALLOC_HEAP_SIZE

// Sends stderr, with the daemon's log, to a file as long as it lives.
class StderrInFile {
 public:
  explicit StderrInFile(std::string path) : path_(std::move(path)), before_(dup(STDERR_FILENO)) {
    const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
    SetLogLevel(LogLevel::kWarning);
  }
  ~StderrInFile() {
    SetLogLevel(LogLevel::kError);
    dup2(before_, STDERR_FILENO);
    close(before_);
  }
  // How often the text stands in the file.
  int Count(const std::string& text) const {
    std::ifstream file(path_);
    std::stringstream all;
    all << file.rdbuf();
    int count = 0;
    for (size_t at = all.str().find(text); at != std::string::npos;
         at = all.str().find(text, at + 1)) {
      ++count;
    }
    return count;
  }

 private:
  const std::string path_;
  const int before_;
};

uint64_t SetHeap(TestClient& client, uint64_t bytes) {
  wire::cuCtxSetLimit_Reply reply{};
  REQUIRE(client.ring->Call(Op::cuCtxSetLimit, wire::cuCtxSetLimit{bytes, kMallocHeap, 0},
                            &reply) == 0);
  return reply.value;
}

TEST_CASE("A program reads the limit that it set, and the log says when its kernels get less") {
  TestDaemon daemon;
  TestClient first(daemon.socket()), second(daemon.socket());
  REQUIRE(first.Open());
  REQUIRE(second.Open());
  const StderrInFile log(daemon.directory.path + "/log");
  const std::string line = "bytes; its kernels get 8388608";
  CHECK(SetHeap(first, 64 * kMiB) == 64 * kMiB);
  CHECK(log.Count(line) == 0);
  daemon.devices[0]->largest_limit = 8 * kMiB;
  CHECK(SetHeap(second, 8 * kMiB) == 8 * kMiB);
  CHECK(log.Count(line) == 0);
  for (int i = 0; i < 3; ++i) CHECK(SetHeap(second, 32 * kMiB) == 32 * kMiB);
  CHECK(log.Count("asks for a limit (CUlimit 2) of 33554432 " + line) == 1);
}

}  // namespace
}  // namespace detshare
