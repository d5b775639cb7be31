#include "server/engines/file_channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "coroutine_runtime/status_cuda.h"
#include "server/engines/engine_channel.h"
#include "tests/server/shared_memory/unnamed_file.h"

namespace detshare {
namespace {

constexpr uint64_t kBytes = UnnamedFile::kBytes;
constexpr std::chrono::minutes kLong(1);

struct Ends {
  Ends() : channel(*MakeEngineChannel()) {}
  const EngineChannel channel;
};

TEST_CASE("The supervisor opens the file of a client, and of no other process") {
  const TicketKey key = TicketKey::Random();
  const Ends ends;
  FileServer server(ends.channel.supervisor, key);
  FileChannel channel(ends.channel.engine, kLong);
  UnnamedFile file;
  const std::string ticket = key.TicketFor(getpid(), geteuid());
  const absl::StatusOr<int> found = channel.Open(ticket, file.mapping, kBytes);
  REQUIRE(found.ok());
  CHECK(fcntl(*found, F_GETFD) == FD_CLOEXEC);
  CHECK(pwrite(*found, "ours", 4, 0) == 4);
  close(*found);
  char text[5] = {};
  CHECK(pread(file.fd, text, 4, 0) == 4);
  CHECK(std::string(text) == "ours");

  const auto refusal = [&](const std::string& by, const ClientMapping& mapping) {
    const absl::StatusOr<int> refused = channel.Open(by, mapping, kBytes);
    REQUIRE_FALSE(refused.ok());
    CHECK(CudaResultOf(refused.status()) == kCudaErrorNotSupported);
    return std::string(refused.status().message());
  };
  CHECK(refusal("", file.mapping) == "the process is no client of this engine");
  CHECK(refusal(key.TicketFor(getppid(), geteuid()), file.mapping) ==
        "the process is no client of this engine");
  ClientMapping other = file.mapping;
  other.inode += 1;
  CHECK(refusal(ticket, other) == "a shared mapping whose file cannot be opened");
  CHECK(channel.Open(ticket, file.mapping, kBytes).ok());
}

TEST_CASE("A question waits for the supervisor that replaces one that is gone") {
  const TicketKey key = TicketKey::Random();
  const Ends first, second;
  auto server = std::make_unique<FileServer>(first.channel.supervisor, key);
  FileChannel channel(first.channel.engine, kLong);
  server.reset();
  UnnamedFile file;
  const std::string ticket = key.TicketFor(getpid(), geteuid());
  std::optional<absl::StatusOr<int>> found;
  std::thread asking([&] { found = channel.Open(ticket, file.mapping, kBytes); });
  const FileServer next(second.channel.supervisor, key);
  channel.Replace(second.channel.engine);
  asking.join();
  REQUIRE(found->ok());
  close(**found);
}

TEST_CASE("Without a supervisor a question is refused after the time allowed") {
  const Ends ends;
  FileChannel channel(ends.channel.engine, std::chrono::milliseconds(20));
  UnnamedFile file;
  // Nobody reads.
  CHECK(absl::IsUnavailable(channel.Open("", file.mapping, kBytes).status()));
  close(ends.channel.supervisor);
  CHECK(absl::IsUnavailable(channel.Open("", file.mapping, kBytes).status()));
}

TEST_CASE("The supervisor goes on after nonsense, and drops descriptors that it did not ask for") {
  const TicketKey key = TicketKey::Random();
  const Ends ends;
  const FileServer server(ends.channel.supervisor, key);
  for (const std::string& nonsense : {std::string("\xff\xff\xff"), std::string(9000, 'x')}) {
    CHECK(send(ends.channel.engine, nonsense.data(), nonsense.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(nonsense.size()));
  }
  UnnamedFile file;
  REQUIRE(ReportPage(ends.channel.engine, file.fd).ok());  // a message of another channel
  FileChannel channel(ends.channel.engine, kLong);
  const absl::StatusOr<int> found =
      channel.Open(key.TicketFor(getpid(), geteuid()), file.mapping, kBytes);
  REQUIRE(found.ok());
  close(*found);
}

}  // namespace
}  // namespace detshare
