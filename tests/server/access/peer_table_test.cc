#include "server/access/peer_table.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/base/logging.h"
#include "tests/server/shared_memory/ring_test_client.h"

namespace detshare {
namespace {

// A connection whose daemon's end is in a table. The test takes gRPC's part.
struct Connected {
  Connected() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0); }
  ~Connected() {
    CloseClient();
    CloseDaemon();
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;
  int fd() const { return ends[0]; }
  std::string name() const { return "fd:" + std::to_string(ends[0]); }
  void CloseDaemon() { Close(ends[0]); }
  void CloseClient() { Close(ends[1]); }
  static void Close(int& end) {
    if (end >= 0) close(std::exchange(end, -1));
  }
  // Whether the table has ended the connection.
  bool over() const {
    char byte;
    return recv(ends[1], &byte, 1, MSG_DONTWAIT) == 0;
  }

  int ends[2] = {-1, -1};
};

Peer PeerOf(uid_t uid, std::shared_ptr<const TenantEndpoint> endpoint = nullptr) {
  Peer peer;
  peer.uid = uid;
  peer.pid = 77;
  peer.endpoint = std::move(endpoint);
  return peer;
}

TEST_CASE("A peer and its endpoint are forgotten when the connection is closed") {
  PeerTable table;
  auto endpoint = std::make_shared<TenantEndpoint>();
  const std::weak_ptr<TenantEndpoint> held = endpoint;
  Connected connection;
  table.Add(connection.fd(), PeerOf(1, std::move(endpoint)));
  std::optional<Peer> found;
  REQUIRE(table.Find(connection.name()).ok());
  found = *table.Find(connection.name());
  CHECK(found->uid == 1);
  CHECK(found->endpoint == held.lock());
  CHECK(table.AnyConnected(1));
  connection.CloseClient();
  const std::string name = connection.name();
  connection.CloseDaemon();
  CHECK_FALSE(table.Find(name).ok());
  found.reset();
  CHECK(Eventually([&] { return held.expired(); }));
  CHECK_FALSE(table.AnyConnected(1));
}

TEST_CASE("A number that another socket has got does not name the former peer") {
  PeerTable table;
  Connected first;
  table.Add(first.fd(), PeerOf(1));
  const int number = first.fd();
  Connected second;
  REQUIRE(dup2(second.fd(), number) == number);
  CHECK_FALSE(table.Find(first.name()).ok());
  CHECK_FALSE(table.Find("fd:123456").ok());
  CHECK_FALSE(table.Find("unix:").ok());
}

TEST_CASE("A user's longest unused connection ends when there are too many without a session") {
  SetLogLevel(LogLevel::kError);
  PeerTable::Limits limits;
  limits.without_session = 2;
  PeerTable table(limits);
  Connected a, b, c, other;
  table.Add(a.fd(), PeerOf(1));
  table.Add(b.fd(), PeerOf(1));
  const uint64_t connection = table.Find(a.name())->connection;
  SECTION("a call makes a connection used") {
    table.Add(c.fd(), PeerOf(1));
    CHECK_FALSE(a.over());
    CHECK(b.over());
  }
  SECTION("a connection with a session does not count") {
    table.SessionBegins(connection);
    table.Add(c.fd(), PeerOf(1));
    CHECK_FALSE(b.over());
    table.SessionEnds(connection);
    table.Add(other.fd(), PeerOf(1));
    CHECK(b.over());
    CHECK_FALSE(a.over());
  }
  SECTION("users have their own") {
    table.Add(other.fd(), PeerOf(2));
    CHECK_FALSE(b.over());
  }
}

std::shared_ptr<const TenantEndpoint> EndpointOf(uint64_t number) {
  auto endpoint = std::make_shared<TenantEndpoint>();
  endpoint->number = number;
  endpoint->name = "box";
  return endpoint;
}

TEST_CASE("Behind an endpoint connections count together, whatever users they have") {
  SetLogLevel(LogLevel::kError);
  PeerTable::Limits limits;
  limits.without_session = 2;
  PeerTable table(limits);
  Connected a, b, c, d, host;
  table.Add(host.fd(), PeerOf(1));
  table.Add(a.fd(), PeerOf(1, EndpointOf(1)));
  table.Add(b.fd(), PeerOf(2, EndpointOf(1)));
  // Neither the user at the daemon's own socket nor another endpoint, whose number is the user's.
  table.Add(c.fd(), PeerOf(3, EndpointOf(2)));
  CHECK_FALSE(a.over());
  table.Add(d.fd(), PeerOf(3, EndpointOf(1)));
  CHECK(a.over());
  for (const Connected* one : {&b, &c, &d, &host}) CHECK_FALSE(one->over());
}

TEST_CASE("Many users together have a bounded number of connections without a session") {
  SetLogLevel(LogLevel::kError);
  PeerTable::Limits limits;
  limits.without_session = 2;
  limits.all_without_session = 3;
  PeerTable table(limits);
  Connected served, a, b, c, d;
  table.Add(served.fd(), PeerOf(1));
  table.SessionBegins(table.Find(served.name())->connection);
  table.Add(a.fd(), PeerOf(1));
  table.Add(b.fd(), PeerOf(2));
  table.Add(c.fd(), PeerOf(3, EndpointOf(1)));
  CHECK_FALSE(a.over());
  REQUIRE(table.Find(a.name()).ok());
  table.Add(d.fd(), PeerOf(4));
  CHECK(b.over());
  for (const Connected* one : {&served, &a, &c, &d}) CHECK_FALSE(one->over());
}

TEST_CASE("A connection whose session has just ended was used until then") {
  SetLogLevel(LogLevel::kError);
  PeerTable::Limits limits;
  limits.without_session = 2;
  PeerTable table(limits);
  Connected a, b, c;
  table.Add(a.fd(), PeerOf(1));
  const uint64_t connection = table.Find(a.name())->connection;
  table.SessionBegins(connection);
  table.Add(b.fd(), PeerOf(1));
  table.SessionEnds(connection);
  table.Add(c.fd(), PeerOf(1));
  CHECK_FALSE(a.over());
  CHECK(b.over());
}

TEST_CASE("A connection that ends makes room once, however long it takes to close") {
  SetLogLevel(LogLevel::kError);
  PeerTable::Limits limits;
  limits.without_session = 2;
  PeerTable table(limits);
  Connected a, b, c, d;
  for (Connected* one : {&a, &b, &c}) table.Add(one->fd(), PeerOf(1));
  CHECK(a.over());
  CHECK_FALSE(b.over());
  table.Add(d.fd(), PeerOf(1));
  CHECK(b.over());
  CHECK_FALSE(c.over());
}

TEST_CASE("A connection that nobody uses is ended") {
  PeerTable::Limits limits;
  limits.unused = std::chrono::milliseconds(1);
  PeerTable table(limits);
  Connected unused;
  table.Add(unused.fd(), PeerOf(1));
  CHECK(Eventually([&] { return unused.over(); }));
}

TEST_CASE("A connection whose peer is refused is ended sooner than others") {
  PeerTable::Limits limits;
  limits.refused = std::chrono::milliseconds(1);
  PeerTable table(limits);
  Connected refused, other;
  table.Add(other.fd(), PeerOf(1));
  Peer peer = PeerOf(1);
  peer.refused = true;
  table.Add(refused.fd(), std::move(peer));
  CHECK(Eventually([&] { return refused.over(); }));
  CHECK_FALSE(other.over());
}

}  // namespace
}  // namespace detshare
