// How new connections say what they are for, and what becomes of those that do not.
#include "server/access/arrivals.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "proto/preamble.h"
#include "server/access/acceptor.h"
#include "server/access/descriptor_share.h"
#include "server/base/logging.h"
#include "tests/server/test_windows.h"
#include "tests/server/unix_sockets.h"

namespace detshare {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Bytes(const Preamble& preamble) {
  return {reinterpret_cast<const char*>(&preamble), sizeof(preamble)};
}

struct Fixture {
  struct Taken {
    int fd;
    Peer peer;
    std::optional<std::string> wish;
  };

  explicit Fixture(Arrivals::Limits limits = {})
      : listen_fd(*ListenOn(path, 0600)),
        arrivals(
            [this](int fd, Peer peer, std::optional<std::string> wish) {
              taken.push_back({fd, std::move(peer), std::move(wish)});
            },
            limits) {
    arrivals.Listen(listen_fd);
  }
  ~Fixture() {
    for (const Taken& one : taken) close(one.fd);
    for (const int fd : clients) close(fd);
    close(listen_fd);
  }

  // Returns a connection on which `bytes` were sent.
  int Connect(const std::string& bytes) {
    const int fd = ConnectTo(path);
    REQUIRE(fd >= 0);
    clients.push_back(fd);
    Send(fd, bytes);
    return fd;
  }
  void Send(int fd, const std::string& bytes) {
    REQUIRE(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    Proceed();
  }
  // Bytes that were sent on a unix socket are there at once.
  void Proceed() {
    for (int i = 0; i < 4; ++i) arrivals.Proceed();
  }
  static bool Closed(int fd) {
    pollfd poll_fd{fd, POLLIN, 0};
    if (poll(&poll_fd, 1, 0) != 1) return false;
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
  }

  TestDirectory directory;
  const std::string path = directory.path + "/s";
  std::vector<Taken> taken;
  std::vector<int> clients;
  const int listen_fd;
  Arrivals arrivals;
};

TEST_CASE("A client's connection comes with its wish and without its preamble") {
  Fixture f;
  f.Connect(Bytes(MakePreamble("chat")).append(kPreface));
  REQUIRE(f.taken.size() == 1);
  CHECK(f.taken[0].wish == std::optional<std::string>("chat"));
  CHECK(f.taken[0].peer.uid == geteuid());
  CHECK(f.taken[0].peer.pid == getpid());
  CHECK_FALSE(f.taken[0].peer.tenant.ok());
  char rest[64];
  CHECK(std::string(rest, static_cast<size_t>(read(f.taken[0].fd, rest, sizeof(rest)))) ==
        kPreface);
}

TEST_CASE("An operator's connection is taken at its first byte, with all of its bytes") {
  Fixture f;
  const int fd = f.Connect("P");
  REQUIRE(f.taken.size() == 1);
  CHECK_FALSE(f.taken[0].wish.has_value());
  f.Send(fd, &kPreface[1]);
  char all[64];
  CHECK(std::string(all, static_cast<size_t>(read(f.taken[0].fd, all, sizeof(all)))) == kPreface);
}

TEST_CASE("A preamble may come byte by byte, while others are served") {
  Fixture f;
  const std::string bytes = Bytes(MakePreamble(""));
  const int slow = f.Connect(bytes.substr(0, 1));
  for (size_t i = 1; i + 1 < bytes.size(); ++i) f.Send(slow, bytes.substr(i, 1));
  CHECK(f.taken.empty());
  f.Connect(Bytes(MakePreamble("quick")));
  REQUIRE(f.taken.size() == 1);
  f.Send(slow, bytes.substr(bytes.size() - 1));
  REQUIRE(f.taken.size() == 2);
  CHECK(f.taken[1].wish == std::optional<std::string>(""));
}

TEST_CASE("A tenant's name that is too long stays too long") {
  Fixture f;
  f.Connect(Bytes(MakePreamble(std::string(5000, 'x'))));
  REQUIRE(f.taken.size() == 1);
  CHECK(f.taken[0].wish->size() > 64);
}

TEST_CASE("What is neither a preamble nor HTTP/2 is closed") {
  Fixture f;
  Preamble later = MakePreamble("x"), long_name = MakePreamble("x");
  ++later.version;
  long_name.tenant_bytes = sizeof(long_name.tenant) + 1;
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("detshark"),
                                   std::string(200, '\0'), Bytes(later), Bytes(long_name)}) {
    CHECK(Fixture::Closed(f.Connect(bytes)));
  }
  const int gone = ConnectTo(f.path);
  close(gone);
  f.Proceed();
  CHECK(f.taken.empty());
}

TEST_CASE("Random bytes end no other connection") {
  Fixture f;
  std::minstd_rand random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = Bytes(MakePreamble("chat"));
    for (int j = 0; j < 3; ++j) bytes[random() % bytes.size()] = static_cast<char>(random());
    close(f.Connect(bytes.substr(0, 1 + random() % bytes.size())));
    f.clients.pop_back();
    f.Proceed();
    for (const Fixture::Taken& one : f.taken) close(one.fd);
    f.taken.clear();
  }
  f.Connect(Bytes(MakePreamble("chat")));
  CHECK(f.taken.size() == 1);
}

TEST_CASE("A user's silent connections are few, and the oldest makes room") {
  Arrivals::Limits limits;
  limits.silent = 3;
  Fixture f(limits);
  std::vector<int> silent;
  for (int i = 0; i < 5; ++i) {
    silent.push_back(ConnectTo(f.path));
    f.clients.push_back(silent.back());
    f.Proceed();
  }
  CHECK(Fixture::Closed(silent[0]));
  CHECK(Fixture::Closed(silent[1]));
  CHECK_FALSE(Fixture::Closed(silent[2]));
  f.Connect(Bytes(MakePreamble("chat")));
  REQUIRE(f.taken.size() == 1);
  f.Send(silent[4], Bytes(MakePreamble("late")));
  CHECK(f.taken.size() == 2);
}

TEST_CASE("Silent connections behind an endpoint count together, and those of all have a bound") {
  TestDirectory other;
  auto endpoint = std::make_shared<TenantEndpoint>();
  endpoint->number = 7;
  Arrivals::Limits limits;
  SECTION("an endpoint has its own") { limits.silent = 2; }
  SECTION("all together make room by the oldest") { limits.all_silent = 2; }
  Fixture f(limits);
  const int listen_fd = *ListenOn(other.path + "/s", 0600);
  f.arrivals.Listen(listen_fd, endpoint);
  const int host = f.Connect("det");
  std::vector<int> inside;
  for (int i = 0; i < 3; ++i) {
    inside.push_back(ConnectTo(other.path + "/s"));
    f.clients.push_back(inside.back());
    f.Proceed();
  }
  CHECK(Fixture::Closed(host) == (limits.all_silent == 2));
  CHECK(Fixture::Closed(inside[0]));
  CHECK_FALSE(Fixture::Closed(inside[1]));
  f.Send(inside[2], Bytes(MakePreamble("chat")));
  REQUIRE(f.taken.size() == 1);
  CHECK(f.taken[0].peer.endpoint == endpoint);
  f.arrivals.Leave(listen_fd);
  close(listen_fd);
}

TEST_CASE("A connection behind an endpoint is silent no more once it is taken") {
  TestDirectory other;
  auto endpoint = std::make_shared<TenantEndpoint>();
  endpoint->number = 7;
  Arrivals::Limits limits;
  limits.silent = 1;
  Fixture f(limits);
  const int listen_fd = *ListenOn(other.path + "/s", 0600);
  f.arrivals.Listen(listen_fd, endpoint);
  for (size_t i = 0; i < 20; ++i) {
    const int fd = ConnectTo(other.path + "/s");
    f.clients.push_back(fd);
    f.Proceed();
    f.Send(fd, Bytes(MakePreamble("chat")));
    REQUIRE(f.taken.size() == i + 1);
    CHECK_FALSE(Fixture::Closed(fd));
  }
  f.arrivals.Leave(listen_fd);
  close(listen_fd);
}

TEST_CASE("Without free descriptors the thread goes on, and the connection comes later") {
  SetLogLevel(LogLevel::kError);
  Fixture f;
  const int fd = ConnectTo(f.path);
  f.clients.push_back(fd);
  REQUIRE(write(fd, "P", 1) == 1);
  const int free = dup(0);
  close(free);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{static_cast<rlim_t>(free), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  f.Proceed();
  // The connection still waits in the socket, and does not keep the thread busy.
  pollfd waiting{f.arrivals.fd(), POLLIN, 0};
  const int busy = poll(&waiting, 1, 0);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(busy == 0);
  CHECK(f.taken.empty());
  while (f.taken.empty()) {
    REQUIRE(poll(&waiting, 1, 60'000) == 1);
    f.arrivals.Proceed();
  }
  CHECK_FALSE(Fixture::Closed(fd));
}

TEST_CASE("A share of the descriptors is a part of the process's limit, up to the most") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{200, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const size_t part = ShareOfDescriptors(4, 1000), most = ShareOfDescriptors(4, 10);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(part == 50);
  CHECK(most == 10);
}

TEST_CASE("A connection that stays silent is closed") {
  Arrivals::Limits limits;
  limits.timeout = std::chrono::milliseconds(1);
  Fixture f(limits);
  const int first = f.Connect("det"), second = f.Connect("detsha");
  pollfd waiting{f.arrivals.fd(), POLLIN, 0};
  while (!Fixture::Closed(first) || !Fixture::Closed(second)) {
    REQUIRE(poll(&waiting, 1, 60'000) == 1);
    f.arrivals.Proceed();
  }
  CHECK(f.taken.empty());
}

TEST_CASE("Each silent connection is closed in its own time") {
  Arrivals::Limits limits;
  limits.timeout = std::chrono::milliseconds(100);
  Fixture f(limits);
  const int first = f.Connect("det");
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const int second = f.Connect("detsha");
  pollfd waiting{f.arrivals.fd(), POLLIN, 0};
  while (!Fixture::Closed(first) || !Fixture::Closed(second)) {
    REQUIRE(poll(&waiting, 1, 60'000) == 1);
    f.arrivals.Proceed();
  }
  CHECK(f.taken.empty());
}

TEST_CASE("A socket that is left accepts no more, and its silent connections end") {
  Fixture f;
  const int silent = f.Connect("det");
  f.arrivals.Leave(f.listen_fd);
  CHECK(Fixture::Closed(silent));
  f.clients.push_back(ConnectTo(f.path));
  f.Send(f.clients.back(), Bytes(MakePreamble("chat")));
  CHECK(f.taken.empty());
}

}  // namespace
}  // namespace detshare
