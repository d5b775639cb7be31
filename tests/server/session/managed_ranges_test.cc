// Managed memory whose pages move: the connection, the memory, and what a wrong call gets.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "coroutine_runtime/status_cuda.h"
#include "proto/managed_socket.h"
#include "proto/wire/context.h"
#include "server/sessions/session_manager.h"
#include "tests/server/soft_daemon.h"

namespace detshare {
namespace {

constexpr uint64_t kBlock = uint64_t{2} << 20;
constexpr uint64_t kCapacity = 8 * kBlock;

// A client, and its connection for managed memory.
struct ManagedClient : TestClient {
  explicit ManagedClient(const std::string& socket, bool connects = true) : TestClient(socket) {
    REQUIRE(Open());
    CreateStream(1);
    if (connects) connection = Connect();
  }
  ~ManagedClient() {
    for (const int fd : {connection, descriptor}) {
      if (fd >= 0) close(fd);
    }
  }
  int Connect() {
    const int folder = open(directory.c_str(), O_PATH | O_DIRECTORY);
    const ManagedSocketAddress address(folder);
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const bool connected = connect(made, address.get(), address.size()) == 0;
    close(folder);
    if (!connected) close(made);
    return connected ? made : -1;
  }
  int Allocate(uint64_t bytes, wire::cuMemAllocManaged_Reply* range) {
    return ring->Call(Op::cuMemAllocManaged, wire::cuMemAllocManaged{bytes}, range);
  }
  int Free(uint64_t address) { return ring->Call(Op::cuMemFreeHost, wire::cuMemFreeHost{address}); }
  int Prefetch(uint64_t address, uint64_t bytes, int32_t place, uint32_t stream = 1) {
    return ring->Call(Op::cuMemPrefetchAsync_v2,
                      wire::cuMemPrefetchAsync_v2{address, bytes, stream, place});
  }
  int Advise(uint64_t address, uint64_t bytes, uint32_t advice, int32_t place) {
    return ring->Call(Op::cuMemAdvise_v2, wire::cuMemAdvise_v2{address, bytes, advice, place});
  }
  // Receives the descriptor. Returns false if none comes.
  bool Receive() {
    pollfd ready{connection, POLLIN, 0};
    if (poll(&ready, 1, 10'000) != 1) return false;
    char byte;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1) return false;
    const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return false;
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof(descriptor));
    return true;
  }
  // Whether the daemon has closed the connection.
  bool Closed() const {
    char byte;
    return recv(connection, &byte, 1, 0) == 0;
  }
  int connection = -1, descriptor = -1;
};

uint64_t DeviceBytes(SoftDaemon& daemon) {
  uint64_t bytes = 0;
  for (const auto& session : daemon.daemon->manager().Sessions())
    bytes += session.counters.device_memory;
  return bytes;
}

TEST_CASE(
    "A client maps managed memory from the descriptor that it gets with its first allocation") {
  SoftDaemon daemon({}, 1, kCapacity);
  ManagedClient client(daemon.socket());
  REQUIRE(client.connection >= 0);
  wire::cuMemAllocManaged_Reply range{};
  REQUIRE(client.Allocate(5000, &range) == 0);
  CHECK(range.address % kPageBytes == 0);
  CHECK(range.bytes == kBlock);
  REQUIRE(client.Receive());
  void* const mapped = mmap(nullptr, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            client.descriptor, static_cast<off_t>(range.address));
  REQUIRE(mapped != MAP_FAILED);
  auto* const words = static_cast<uint64_t*>(mapped);
  words[0] = 0x1234;

  // Its work reaches the memory, and not what lies beside it.
  const auto copy = [&](uint64_t to, uint64_t from) {
    return client.ring->Call(
        Op::cuMemcpyAsync, client.CopyOf({to, wire::kAddress, 0}, {from, wire::kAddress, 0}, 8, 1));
  };
  CHECK(copy(range.address + 8, range.address) == 0);
  CHECK(client.Synchronize(1) == 0);
  CHECK(words[1] == 0x1234);
  CHECK(copy(range.address + range.bytes, range.address) == kCudaErrorInvalidValue);
  CHECK(client.Prefetch(range.address, range.bytes, 0) == 0);
  CHECK(client.Prefetch(range.address + 100, 5, wire::kPlaceHost) == 0);
  CHECK(client.Advise(range.address, 1, 3, 0) == 0);
  CHECK(client.Synchronize(1) == 0);

  munmap(mapped, range.bytes);
  CHECK(client.Free(range.address) == 0);
  CHECK(client.Free(range.address) == kCudaErrorInvalidValue);
  CHECK(copy(range.address + 8, range.address) == kCudaErrorInvalidValue);
}

TEST_CASE("Without a connection there is no managed memory whose pages move") {
  SoftDaemon daemon({}, 1, kCapacity);
  ManagedClient client(daemon.socket(), /*connects=*/false);
  wire::cuMemAllocManaged_Reply range{};
  CHECK(client.Allocate(5000, &range) == kCudaErrorNotSupported);
  client.connection = client.Connect();
  CHECK(client.Allocate(5000, &range) == 0);
}

TEST_CASE("A daemon without such memory has no socket for it") {
  SoftDaemon daemon;
  ManagedClient client(daemon.socket());
  CHECK(client.connection == -1);
  wire::cuMemAllocManaged_Reply range{};
  CHECK(client.Allocate(5000, &range) == kCudaErrorNotSupported);
}

TEST_CASE("The connection of another user gets no descriptor") {
  if (geteuid() != 0) {
    WARN("skipped: only root can become another user");
    return;
  }
  SoftDaemon daemon({}, 1, kCapacity);
  ManagedClient client(daemon.socket(), /*connects=*/false);
  chmod(daemon.directory.path.c_str(), 0755);
  const std::string path = client.directory + "/" + kManagedSocket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof(address.sun_path));
  std::strcpy(address.sun_path, path.c_str());
  const int other = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  REQUIRE(seteuid(65534) == 0);
  const int connected = connect(other, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  REQUIRE(seteuid(0) == 0);
  REQUIRE(connected == 0);
  wire::cuMemAllocManaged_Reply range{};
  CHECK(client.Allocate(5000, &range) == kCudaErrorNotSupported);
  char byte;
  CHECK(recv(other, &byte, 1, 0) <= 0);
  close(other);
  // The connection of the session's own user still gets one.
  client.connection = client.Connect();
  CHECK(client.Allocate(5000, &range) == 0);
  CHECK(client.Receive());
}

TEST_CASE("Wrong calls about managed memory are errors, and change nothing") {
  SoftDaemon daemon({}, 1, kCapacity);
  ManagedClient client(daemon.socket());
  wire::cuMemAllocManaged_Reply range{};
  CHECK(client.Allocate(0, &range) == kCudaErrorInvalidValue);
  for (const uint64_t bytes : {kCapacity + 1, uint64_t{1} << 50, uint64_t{1} << 63, ~uint64_t{0}})
    CHECK(client.Allocate(bytes, &range) == kCudaErrorOutOfMemory);
  REQUIRE(client.Allocate(kBlock, &range) == 0);
  const uint64_t end = range.address + range.bytes;
  struct {
    uint64_t address, bytes;
  } const wrong[] = {{range.address, 0},      {range.address, range.bytes + 1},
                     {range.address - 1, 2},  {end, 1},
                     {end - 1, ~uint64_t{0}}, {0, 1},
                     {~uint64_t{0}, 1},       {0x7EA000000000, 4096}};
  for (const auto& [address, bytes] : wrong) {
    CHECK(client.Prefetch(address, bytes, 0) == kCudaErrorInvalidValue);
    CHECK(client.Advise(address, bytes, 1, 0) == kCudaErrorInvalidValue);
  }
  for (const int32_t place : {1, 31, INT32_MAX, -2, INT32_MIN}) {
    CHECK(client.Prefetch(range.address, 1, place) == kCudaErrorInvalidValue);
    CHECK(client.Advise(range.address, 1, 1, place) == kCudaErrorInvalidValue);
  }
  CHECK(client.Prefetch(range.address, 1, 0, /*stream=*/77) != 0);
  CHECK(client.Free(range.address + 1) == kCudaErrorInvalidValue);
  CHECK(client.Free(range.address) == 0);
  CHECK(client.Allocate(kCapacity, &range) == 0);
}

TEST_CASE("A tenant's limit counts managed memory") {
  SoftDaemon daemon(
      [](Daemon::Options& options) { options.server.default_quota.memory = 2 * kBlock; }, 1,
      kCapacity);
  ManagedClient client(daemon.socket());
  wire::cuMemAllocManaged_Reply range{};
  CHECK(client.Allocate(2 * kBlock + 1, &range) == kCudaErrorOutOfMemory);
  CHECK(client.Allocate(2 * kBlock, &range) == 0);
  CHECK(client.Allocate(1, &range) == kCudaErrorOutOfMemory);
  CHECK(client.Free(range.address) == 0);
  CHECK(client.Allocate(1, &range) == 0);
}

TEST_CASE("Managed memory ends with its context, and with the session") {
  SoftDaemon daemon({}, 1, kCapacity);
  wire::cuMemAllocManaged_Reply range{};
  {
    ManagedClient client(daemon.socket());
    REQUIRE(client.Allocate(kCapacity, &range) == 0);
    CHECK(DeviceBytes(daemon) == kCapacity);
    client.ring->Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{client.ring->context, 0});
    CHECK(client.Free(range.address) == kCudaErrorInvalidValue);
    REQUIRE(client.Allocate(kCapacity, &range) == 0);
    REQUIRE(client.Receive());
    client.Close();
    // The process that keeps the client's memory waits for this.
    CHECK(client.Closed());
  }
  ManagedClient next(daemon.socket());
  CHECK(next.Allocate(kCapacity, &range) == 0);
}

}  // namespace
}  // namespace detshare
