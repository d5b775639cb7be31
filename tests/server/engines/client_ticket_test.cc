#include "server/engines/client_ticket.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <climits>
#include <string>

namespace detshare {
namespace {

TEST_CASE("A ticket is that of one process and one user") {
  const TicketKey key = TicketKey::Random();
  const std::string ticket = key.TicketFor(getpid(), 1000);
  CHECK(key.Accepts(ticket, getpid(), 1000));
  CHECK_FALSE(key.Accepts(ticket, getpid(), 1001));
  CHECK_FALSE(key.Accepts(ticket, getppid(), 1000));
  CHECK_FALSE(key.Accepts(ticket, 0, 1000));
  CHECK_FALSE(TicketKey::Random().Accepts(ticket, getpid(), 1000));
}

TEST_CASE("A text that is no ticket is not accepted") {
  const TicketKey key = TicketKey::Random();
  const std::string ticket = key.TicketFor(getpid(), 0);
  std::string other = ticket;
  other.back() ^= 1;
  for (const std::string& wrong :
       {std::string(), ticket.substr(1), ticket + "x", other, std::string(ticket.size(), '\0')})
    CHECK_FALSE(key.Accepts(wrong, getpid(), 0));
}

TEST_CASE("A process that has ended has no ticket, and its ticket is not accepted") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(ends[1]);
    [[maybe_unused]] const ssize_t got = read(ends[0], &byte, 1);
    _exit(0);
  }
  const TicketKey key = TicketKey::Random();
  const std::string ticket = key.TicketFor(child, 0);
  CHECK(key.Accepts(ticket, child, 0));
  close(ends[0]);
  close(ends[1]);
  waitpid(child, nullptr, 0);
  CHECK_FALSE(key.Accepts(ticket, child, 0));
  CHECK(key.TicketFor(child, 0).empty());
  // No text is a ticket of no process.
  CHECK_FALSE(key.Accepts("", INT_MAX, 0));
}

TEST_CASE("A process that the daemon does not see has a ticket of its user") {
  const TicketKey key = TicketKey::Random();
  CHECK(key.Accepts(key.TicketFor(0, 1000), 0, 1000));
  CHECK_FALSE(key.Accepts(key.TicketFor(0, 1000), 0, 0));
}

TEST_CASE("The next supervisor accepts the tickets of the one before") {
  const TicketKey key = TicketKey::Random();
  const auto next = TicketKey::FromBytes(key.bytes());
  REQUIRE(next.has_value());
  CHECK(next->Accepts(key.TicketFor(getpid(), 0), getpid(), 0));
  CHECK_FALSE(TicketKey::FromBytes("").has_value());
  CHECK_FALSE(TicketKey::FromBytes(key.bytes() + "x").has_value());
}

}  // namespace
}  // namespace detshare
