#include "tools/detsharectl/trace.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace detshare::ctl {
namespace {

using nlohmann::json;

proto::TracedEvent* Operation(proto::SessionTrace* session, uint32_t name, int64_t at_us,
                              int64_t duration_us, uint32_t first_sm, uint32_t sm_count) {
  proto::TracedEvent* const event = session->add_events();
  event->set_kind(proto::TracedEvent::OPERATION);
  event->set_name(name);
  event->set_stream(1);
  event->set_at_ns(at_us * 1000);
  event->set_submitted_ns((at_us - 5) * 1000);
  event->set_duration_ns(duration_us * 1000);
  event->set_first_sm(first_sm);
  event->set_sm_count(sm_count);
  return event;
}

// The events of a phase (Chrome's word for a kind of event) on a track.
std::vector<json> On(const json& trace, const std::string& phase, uint64_t track) {
  std::vector<json> events;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == phase && event["tid"] == track) events.push_back(event);
  }
  return events;
}

TEST_CASE("A trace names each isolation group whose engine did not reply once") {
  proto::TraceChunk chunk;
  chunk.add_silent_groups("chat");
  TraceWriter writer(0);
  writer.Add(chunk);
  writer.Add(chunk);
  CHECK(writer.silent_groups() == std::set<std::string>{"chat"});
}

TEST_CASE("Operations are slices with their names, partitions and times in the queue") {
  proto::TraceChunk chunk;
  proto::SessionTrace* const session = chunk.add_sessions();
  session->set_session(7);
  session->set_tenant("serve");
  (*session->mutable_names())[1] = "_Z5ScalePff";
  Operation(session, 1, 1000, 20, 0, 64);
  Operation(session, 1, 1030, 20, 0, 64);
  Operation(session, 1, 1060, 20, 64, 68);
  TraceWriter writer(1'000'000);
  writer.Add(chunk);
  CHECK(writer.operations() == 3);
  const json trace = json::parse(writer.Finish());
  const std::vector<json> slices = On(trace, "X", 1);
  REQUIRE(slices.size() == 3);
  CHECK(slices[0]["name"] == "Scale(float*, float)");
  CHECK(slices[0]["ts"] == 0);
  CHECK(slices[1]["ts"] == 30);
  CHECK(slices[1]["dur"] == 20);
  CHECK(slices[2]["args"]["partition"] == "sm64-131");
  CHECK(slices[2]["args"]["queued_us"] == 5);
  // The partition's track has one slice for each stay.
  const std::vector<json> stays = On(trace, "X", 1'000'000);
  REQUIRE(stays.size() == 2);
  CHECK(stays[0]["name"] == "sm0-63");
  CHECK(stays[0]["dur"] == 50);
  CHECK(stays[1]["name"] == "sm64-131");
}

TEST_CASE(
    "Throttles have their cause, collections a track, migrations and waits are instants, and names "
    "come once") {
  proto::TraceChunk chunk;
  proto::SessionTrace* session = chunk.add_sessions();
  session->set_session(7);
  (*session->mutable_names())[1] = "kernel";
  proto::TracedEvent* event = session->add_events();
  event->set_kind(proto::TracedEvent::THROTTLED);
  event->set_cause("window");
  event->set_at_ns(5000);
  event->set_duration_ns(2000);
  event = session->add_events();
  event->set_kind(proto::TracedEvent::COLLECTION);
  event->set_at_ns(8000);
  event->set_duration_ns(3000);
  event = session->add_events();
  event->set_kind(proto::TracedEvent::MIGRATION);
  event->set_stream(2);
  event->set_first_sm(8);
  event->set_sm_count(8);
  event = session->add_events();
  event->set_kind(proto::TracedEvent::WAIT);
  event->set_stream(2);
  session->set_lost(3);
  TraceWriter writer(0);
  writer.Add(chunk);
  chunk.Clear();
  session = chunk.add_sessions();
  session->set_session(7);
  Operation(session, 1, 10, 1, 0, 8);
  writer.Add(chunk);
  CHECK(writer.lost() == 3);
  const json trace = json::parse(writer.Finish());
  const std::vector<json> throttled = On(trace, "X", 1'000'001);
  REQUIRE(throttled.size() == 1);
  CHECK(throttled[0]["name"] == "throttled by the window");
  CHECK(throttled[0]["dur"] == 2);
  const std::vector<json> collecting = On(trace, "X", 1'000'002);
  REQUIRE(collecting.size() == 1);
  CHECK(collecting[0]["name"] == "collects operations");
  CHECK(collecting[0]["dur"] == 3);
  REQUIRE(On(trace, "i", 2).size() == 2);
  CHECK(On(trace, "i", 2)[0]["name"] == "to sm8-15");
  CHECK(On(trace, "X", 1)[0]["name"] == "kernel");
}

TEST_CASE(
    "Changes of the time-slice group have their cause, and urgent work a partition of its own") {
  proto::TraceChunk chunk;
  proto::SessionTrace* const session = chunk.add_sessions();
  session->set_session(7);
  Operation(session, 1, 10, 5, 0, 132);
  for (const char* cause : {"preempts", "back to ordinary"}) {
    proto::TracedEvent* const event = session->add_events();
    event->set_kind(proto::TracedEvent::MIGRATION);
    event->set_stream(1);
    event->set_sm_count(132);
    event->set_cause(cause);
  }
  Operation(session, 1, 20, 5, 0, 132)->set_urgent(true);
  Operation(session, 1, 30, 5, 0, 132);
  TraceWriter writer(0);
  writer.Add(chunk);
  const json trace = json::parse(writer.Finish());
  REQUIRE(On(trace, "i", 1).size() == 2);
  CHECK(On(trace, "i", 1)[0]["name"] == "preempts");
  CHECK(On(trace, "i", 1)[1]["name"] == "back to ordinary");
  CHECK(On(trace, "X", 1)[1]["args"]["partition"] == "urgent");
  const std::vector<json> stays = On(trace, "X", 1'000'000);
  REQUIRE(stays.size() == 3);
  CHECK(stays[0]["name"] == "sm0-131");
  CHECK(stays[1]["name"] == "urgent");
  CHECK(stays[2]["name"] == "sm0-131");
}

TEST_CASE("The file is valid JSON, whatever the names are") {
  proto::TraceChunk chunk;
  proto::SessionTrace* const session = chunk.add_sessions();
  session->set_program("a\"b\\\n");
  (*session->mutable_names())[1] = "k\"\x01";
  Operation(session, 1, 1, 1, 0, 1);
  Operation(session, 99, 2, 1, 0, 1);  // a name that the trace does not have
  TraceWriter writer(0);
  writer.Add(chunk);
  CHECK(json::parse(writer.Finish())["traceEvents"].size() > 2);
  CHECK(json::parse(TraceWriter(0).Finish())["traceEvents"].empty());
}

}  // namespace
}  // namespace detshare::ctl
