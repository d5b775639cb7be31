// Limits on the number of sessions across several processes, and the processes' requests.
#include "server/engines/session_book.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "server/engines/admission_channel.h"

namespace detshare {
namespace {

using Outcome = SessionBook::Outcome;

TEST_CASE("No two sessions have the same number, whichever process they belong to") {
  SessionBook book;
  CHECK(book.Enter(1, "a").session == 1);
  CHECK(book.Enter(2, "a").session == 2);
  book.Leave(1, 1);
  CHECK(book.Enter(1, "b").session == 3);
  book.Forget(1);
  CHECK(book.Enter(1, "b").session == 4);
}

TEST_CASE("A tenant's limit holds for all processes together, until a session leaves") {
  SessionBook book;
  book.SetLimits({.tenants = {{"a", 2}, {"free", 0}}, .other_tenants = 1});
  CHECK(book.Enter(1, "a").outcome == Outcome::kEnter);
  const uint64_t second = book.Enter(2, "a").session;
  const SessionBook::Decision third = book.Enter(1, "a");
  CHECK(third.outcome == Outcome::kTenantIsFull);
  CHECK(third.used == 2);
  CHECK(third.limit == 2);
  // A process can only give back its own sessions.
  book.Leave(1, second);
  CHECK(book.Enter(1, "a").outcome == Outcome::kTenantIsFull);
  book.Leave(2, second);
  book.Leave(2, second);
  CHECK(book.Enter(1, "a").outcome == Outcome::kEnter);
  CHECK(book.Enter(2, "a").outcome == Outcome::kTenantIsFull);
  CHECK(book.Enter(2, "other").outcome == Outcome::kEnter);
  CHECK(book.Enter(1, "other").outcome == Outcome::kTenantIsFull);
  for (int i = 0; i < 10; ++i) CHECK(book.Enter(1, "free").outcome == Outcome::kEnter);
}

TEST_CASE("The sessions of a process are free when it has ended") {
  SessionBook book;
  book.SetLimits({.all = 2});
  CHECK(book.Enter(1, "a").outcome == Outcome::kEnter);
  CHECK(book.Enter(1, "b").outcome == Outcome::kEnter);
  CHECK(book.Enter(2, "c").outcome == Outcome::kDaemonIsFull);
  book.Forget(1);
  book.Forget(1);
  CHECK(book.Enter(2, "c").outcome == Outcome::kEnter);
  CHECK(book.Enter(2, "c").outcome == Outcome::kEnter);
  CHECK(book.Enter(2, "c").outcome == Outcome::kDaemonIsFull);
}

TEST_CASE("Limits change at once, and sessions above them stay") {
  SessionBook book;
  for (int i = 0; i < 3; ++i) book.Enter(1, "a");
  book.SetLimits({.tenants = {{"a", 2}}});
  CHECK(book.Enter(2, "a").outcome == Outcome::kTenantIsFull);
  book.Leave(1, 1);
  CHECK(book.Enter(2, "a").outcome == Outcome::kTenantIsFull);
  book.Leave(1, 2);
  CHECK(book.Enter(2, "a").outcome == Outcome::kEnter);
}

TEST_CASE("A process that enters endless sessions fills only its own part") {
  SessionBook book;
  for (size_t i = 0; i < SessionBook::kMaxOfProcess; ++i)
    REQUIRE(book.Enter(1, "a").outcome == Outcome::kEnter);
  CHECK(book.Enter(1, "b").outcome == Outcome::kProcessIsFull);
  CHECK(book.Enter(2, "a").outcome == Outcome::kEnter);
}

struct Ends {
  Ends() { REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0); }
  ~Ends() {
    if (fds[0] >= 0) close(fds[0]);
  }
  int fds[2];  // the second one belongs to the channel
};

// The next request.
AdmissionRequest Await(int channel) {
  for (;;) {
    if (auto request = TakeAdmissionRequest(channel)) return *request;
    std::this_thread::yield();
  }
}

TEST_CASE("A request gets a number or the limit that refuses it") {
  Ends ends;
  AdmissionChannel channel(ends.fds[1], std::chrono::seconds(60));
  std::thread acceptor([&] {
    const AdmissionRequest first = Await(ends.fds[0]);
    CHECK(first.tenant == "chat");
    SendAdmissionReply(ends.fds[0], first.question, {Outcome::kEnter, 7});
    const AdmissionRequest second = Await(ends.fds[0]);
    CHECK(second.tenant == std::string(64, 'x'));
    SendAdmissionReply(ends.fds[0], second.question, {Outcome::kTenantIsFull, 0, 3, 4});
    const AdmissionRequest third = Await(ends.fds[0]);
    SendAdmissionReply(ends.fds[0], third.question, {Outcome::kDaemonIsFull, 0, 5, 6});
  });
  const auto entered = channel.Enter("chat");
  CHECK(entered.status.ok());
  CHECK(entered.session == 7);
  const auto full = channel.Enter(std::string(64, 'x'));
  CHECK(absl::IsResourceExhausted(full.status));
  CHECK(full.of_tenant);
  CHECK(full.status.message().find("3 of 4 in use") != std::string::npos);
  const auto refused = channel.Enter("chat");
  CHECK(absl::IsResourceExhausted(refused.status));
  CHECK_FALSE(refused.of_tenant);
  acceptor.join();
  { const AdmittedSession session(&channel, 7); }
  const AdmissionRequest left = Await(ends.fds[0]);
  CHECK(left.question == 0);
  CHECK(left.session == 7);
}

TEST_CASE("A late reply is not taken for the next request, and its session leaves") {
  Ends ends;
  AdmissionChannel channel(ends.fds[1], std::chrono::milliseconds(20));
  CHECK(absl::IsUnavailable(channel.Enter("a").status));
  const AdmissionRequest late = Await(ends.fds[0]);
  SendAdmissionReply(ends.fds[0], late.question, {Outcome::kEnter, 1});
  CHECK(absl::IsUnavailable(channel.Enter("a").status));
  const AdmissionRequest next = Await(ends.fds[0]);
  CHECK(next.question == late.question + 1);
  CHECK(Await(ends.fds[0]).session == 1);
}

TEST_CASE("No session is admitted when the deciding process has ended and none replaces it") {
  Ends ends;
  AdmissionChannel channel(ends.fds[1], std::chrono::milliseconds(20));
  close(std::exchange(ends.fds[0], -1));
  CHECK(absl::IsUnavailable(channel.Enter("a").status));
  channel.Leave(1);
}

TEST_CASE("A process that replaces the deciding one learns of all sessions and gets the question") {
  Ends first, second;
  AdmissionChannel channel(first.fds[1], std::chrono::seconds(60));
  AdmissionRequest left, asked, known, last;
  std::thread acceptor([&] {
    SendAdmissionReply(first.fds[0], Await(first.fds[0]).question, {Outcome::kEnter, 7});
    SendAdmissionReply(first.fds[0], Await(first.fds[0]).question, {Outcome::kEnter, 8});
    left = Await(first.fds[0]);
    // It ends with a question before it.
    asked = Await(first.fds[0]);
    close(std::exchange(first.fds[0], -1));
    channel.Replace(std::exchange(second.fds[1], -1));
    known = Await(second.fds[0]);
    last = Await(second.fds[0]);
    SendAdmissionReply(second.fds[0], Await(second.fds[0]).question, {Outcome::kEnter, 9});
  });
  CHECK(channel.Enter("chat").session == 7);
  CHECK(channel.Enter("train").session == 8);
  channel.Leave(7);
  CHECK(channel.Enter("chat").session == 9);
  acceptor.join();
  CHECK(left.kind == AdmissionRequest::Kind::kLeave);
  CHECK(asked.kind == AdmissionRequest::Kind::kEnter);
  CHECK(known.kind == AdmissionRequest::Kind::kGoesOn);
  CHECK(known.session == 8);
  CHECK(known.tenant == "train");
  CHECK(last.kind == AdmissionRequest::Kind::kToldAll);
}

TEST_CASE(
    "Sessions that go on count, whatever the limits are, and their numbers are not given again") {
  SessionBook book;
  SessionBook::Limits limits;
  limits.all = 3;
  limits.tenants["chat"] = 1;
  book.SetLimits(limits);
  book.BeginAt(1000);
  book.GoOn(1, 5, "chat");
  book.GoOn(1, 5, "chat");
  book.GoOn(1, 6, "chat");
  CHECK(book.CountOf(1) == 2);
  CHECK(book.Has(6));
  CHECK_FALSE(book.Has(7));
  CHECK(book.Enter(1, "chat").outcome == Outcome::kTenantIsFull);
  CHECK(book.Enter(2, "train").session == 1000);
  CHECK(book.Enter(2, "train").outcome == Outcome::kDaemonIsFull);
  book.Leave(1, 5);
  book.Leave(1, 6);
  CHECK(book.Enter(1, "chat").session == 1001);
  book.BeginAt(10);
  CHECK(book.next() == 1002);
  // A process cannot fill the book.
  for (uint64_t session = 10'000; session < 20'000; ++session) book.GoOn(3, session, "train");
  CHECK(book.CountOf(3) == SessionBook::kMaxOfProcess);
}

TEST_CASE("Malformed requests are ignored") {
  Ends ends;
  const std::string nonsense(1000, 'x');
  for (const size_t bytes : {1, 79, 81, 1000})
    REQUIRE(write(ends.fds[1], nonsense.data(), bytes) == static_cast<ssize_t>(bytes));
  CHECK_FALSE(TakeAdmissionRequest(ends.fds[0]).has_value());
  close(ends.fds[1]);
  CHECK_FALSE(TakeAdmissionRequest(ends.fds[0]).has_value());
}

}  // namespace
}  // namespace detshare
