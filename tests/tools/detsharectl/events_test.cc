#include "tools/detsharectl/events.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace detshare::ctl {
namespace {

proto::Event ExampleEvent() {
  proto::Event event;
  event.set_number(7);
  event.set_unix_ns(1'700'000'000'250'000'000);
  event.set_kind("opened");
  event.set_session(3);
  event.set_tenant("alice");
  event.set_pid(42);
  event.set_program("a\"b\xff");
  event.set_text("why");
  return event;
}

TEST_CASE("An event is one line, as text and as JSON") {
  const std::string text = EventText(ExampleEvent());
  CHECK(text.find("opened") != std::string::npos);
  CHECK(text.find("session 3 tenant alice pid 42") != std::string::npos);
  CHECK(text.substr(text.size() - 6) == ": why\n");
  const std::string line = EventJson(ExampleEvent());
  CHECK(line.find('\n') == line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  CHECK(json["time"] == "2023-11-14T22:13:20.250000Z");
  CHECK(json["number"] == 7);
  CHECK(json["tenant"] == "alice");
}

TEST_CASE("The text of an event without a subject stands alone") {
  proto::Event event;
  event.set_kind("config");
  event.set_text("read (a signal): nothing changed");
  CHECK(EventText(event).find("config         read (a signal)") != std::string::npos);
}

TEST_CASE("What happened begins in the same column, whatever the kind of the event") {
  proto::Event event = ExampleEvent();
  const size_t column = EventText(event).find("session 3");
  event.set_kind("engine-adopted");
  CHECK(EventText(event).find("session 3") == column);
}

TEST_CASE("Events are chosen by session, tenant and kind") {
  EventsOptions options;
  CHECK(Wanted(ExampleEvent(), options));
  options.session = 3;
  options.tenant = "alice";
  options.kind = "opened";
  CHECK(Wanted(ExampleEvent(), options));
  options.kind = "ended";
  CHECK_FALSE(Wanted(ExampleEvent(), options));
  options.kind = "";
  options.session = 4;
  CHECK_FALSE(Wanted(ExampleEvent(), options));
}

TEST_CASE("An event of an endpoint tells whose it was") {
  proto::Event event = ExampleEvent();
  CHECK(nlohmann::json::parse(EventJson(event))["owner"].is_null());
  event.mutable_owner()->set_namespace_("models");
  event.mutable_owner()->set_pod("chat-0");
  CHECK(EventText(event).find("tenant alice (models/chat-0) pid 42") != std::string::npos);
  CHECK(nlohmann::json::parse(EventJson(event))["owner"]["namespace"] == "models");
}

}  // namespace
}  // namespace detshare::ctl
