#include "server/base/event_log.h"

#include <catch2/catch.hpp>

namespace detshare {
namespace {

DaemonEvent Saying(std::string text) {
  DaemonEvent event;
  event.text = std::move(text);
  return event;
}

TEST_CASE("Events come back in their order, from a number on or the latest") {
  EventLog log;
  CHECK(log.Latest(5).events.empty());
  CHECK(log.Latest(5).next == 1);
  for (int i = 1; i <= 5; ++i) log.Add(Saying(std::to_string(i)));
  const EventLog::Page two = log.Latest(2);
  REQUIRE(two.events.size() == 2);
  CHECK(two.events[0].text == "4");
  CHECK(two.events[1].number == 5);
  CHECK(two.next == 6);
  const EventLog::Page middle = log.From(2, 2);
  REQUIRE(middle.events.size() == 2);
  CHECK(middle.events[0].text == "2");
  CHECK(middle.next == 4);
  CHECK(log.From(6, 10).events.empty());
  CHECK(log.From(6, 10).next == 6);
  CHECK(log.From(UINT64_MAX, 10).next == 6);
  CHECK(log.From(0, SIZE_MAX).events.size() == 5);
}

TEST_CASE("The oldest events are dropped, and a reader that asks for them learns how many") {
  EventLog log;
  for (size_t i = 0; i < EventLog::kMax + 10; ++i) log.Add(Saying("x"));
  const EventLog::Page page = log.From(1, SIZE_MAX);
  CHECK(page.events.size() == EventLog::kMax);
  CHECK(page.lost == 10);
  CHECK(page.events.front().number == 11);
  CHECK(log.From(11, 1).lost == 0);
  CHECK(log.Latest(SIZE_MAX).lost == 0);
}

TEST_CASE("A client's text is one line of bounded length") {
  EventLog log;
  log.Add(Saying("a\nb\x1b[2J\xff" + std::string(5000, 'x')));
  const std::string text = log.Latest(1).events[0].text;
  CHECK(text.size() == EventLog::kMaxText);
  CHECK(text.substr(0, 9) == "a?b?[2J?x");
}

TEST_CASE("Events of an endpoint keep the owner that it had then") {
  EventLog log;
  proto::Owner owner;
  owner.set_job("17");
  log.KnowOwners([&](uint64_t endpoint) { return endpoint == 3 ? owner : proto::Owner(); });
  DaemonEvent event = Saying("x");
  log.Add(event);
  event.endpoint = 3;
  log.Add(event);
  owner.set_job("18");
  log.Add(event);
  const EventLog::Page page = log.Latest(3);
  CHECK(page.events[0].owner.job().empty());
  CHECK(page.events[1].owner.job() == "17");
  CHECK(page.events[2].owner.job() == "18");
}

}  // namespace
}  // namespace detshare
