#include "tools/detsharectl/status.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace detshare::ctl {
namespace {

proto::Status ExampleStatus() {
  proto::Status status;
  status.set_version("1.2.3");
  status.set_abi_version(7);
  status.set_uptime_ms(61'000);
  status.set_pid(42);
  status.set_backend("soft");
  status.set_policy("whole");
  proto::DeviceStatus* device = status.add_devices();
  device->set_name("Some GPU");
  device->set_sm_count(132);
  device->set_total_memory(8ull << 30);
  device->set_used_memory(1ull << 30);
  device->set_state("ok");
  return status;
}

TEST_CASE("A session is shown with its devices") {
  proto::Status status = ExampleStatus();
  proto::SessionStatus* session = status.add_sessions();
  CHECK(DevicesText(*session) == "-");
  session->add_devices(2);
  session->add_devices(0);
  CHECK(DevicesText(*session) == "2,0");
  CHECK(StatusText(status).find("2,0") != std::string::npos);
}

TEST_CASE("Status without sessions says so") {
  const std::string text = StatusText(ExampleStatus());
  CHECK(text.find("detshared 1.2.3, pid 42, up 1 min 1 s, backend soft, policy whole") == 0);
  CHECK(text.find("Some GPU") != std::string::npos);
  CHECK(text.find("1 GiB") != std::string::npos);
  CHECK(text.find("No sessions.") != std::string::npos);
  CHECK(text.find("host memory") == std::string::npos);
}

TEST_CASE("Status lists the engines if there are isolation groups, and JSON always does") {
  proto::Status status = ExampleStatus();
  status.add_engines()->set_pid(77);
  CHECK(StatusText(status).find("GROUP") == std::string::npos);
  CHECK(nlohmann::json::parse(StatusJson(status))["engines"][0]["pid"] == 77);
  status.clear_engines();
  for (const char* group : {"chat", "train"}) {
    proto::EngineStatus* const engine = status.add_engines();
    engine->set_group(group);
    engine->set_version("1.2.3");
    engine->add_devices(0);
    engine->set_sessions(3);
    engine->set_device_memory(2 << 20);
    engine->set_socket("/run/detshare/engines/chat/detshared.sock");
  }
  status.mutable_engines(1)->set_problem("no reply in time");
  CHECK(StatusText(status).find("Spare") == std::string::npos);
  status.add_spare_engines(123);
  status.add_spare_engines(456);
  const std::string text = StatusText(status);
  CHECK(text.find("\nSpare engines: pid 123, 456\n") != std::string::npos);
  CHECK(text.find("GROUP") != std::string::npos);
  CHECK(text.find("/run/detshare/engines/chat/detshared.sock") != std::string::npos);
  CHECK(text.find("no reply in time") != std::string::npos);
  CHECK(SilentEnginesText(status) ==
        "detsharectl: the engine of isolation group train is not shown: no reply in time\n");
  CHECK(SilentEnginesText(ExampleStatus()).empty());
  // A narrow terminal has no room for the path, which nobody could use if it were shortened.
  CHECK(StatusText(status, 80).find("chat") != std::string::npos);
  CHECK(StatusText(status, 80).find("ADMINISTER") == std::string::npos);
  CHECK(StatusText(status, 80).find("/run") == std::string::npos);
  CHECK(StatusText(status, 160).find("/run/detshare/engines/chat/detshared.sock") !=
        std::string::npos);
  const auto json = nlohmann::json::parse(StatusJson(status));
  CHECK(json["engines"][0]["group"] == "chat");
  CHECK(json["engines"][0]["version"] == "1.2.3");
  CHECK(json["engines"][0]["devices"] == std::vector<int>{0});
  CHECK(json["engines"][0]["sessions"] == 3);
  CHECK(json["engines"][0]["device_memory"] == 2 << 20);
  CHECK(json["engines"][1]["problem"] == "no reply in time");
  CHECK(json["spare_engines"] == std::vector<int>{123, 456});
}

TEST_CASE("Status shows how much device memory is in host memory, if memory may move") {
  proto::Status status = ExampleStatus();
  status.set_swap_limit(4ull << 30);
  status.set_swap_used(1ull << 20);
  CHECK(StatusText(status).find("host memory: 1 MiB of at most 4 GiB") != std::string::npos);
}

TEST_CASE("Status as JSON keeps 64-bit numbers as numbers") {
  proto::Status status = ExampleStatus();
  proto::SessionStatus* session = status.add_sessions();
  session->set_session(9);
  session->add_devices(2);
  session->add_devices(0);
  session->set_tenant("alice");
  session->set_device_memory(5'000'000'000);
  session->set_kernels(12);
  session->mutable_swap()->set_out(7'000'000'000);
  status.set_swap_limit(9'000'000'000);
  const auto json = nlohmann::json::parse(StatusJson(status));
  CHECK(json["devices"][0]["total_memory"] == 8ull << 30);
  CHECK(json["sessions"][0]["session"] == 9);
  CHECK(json["sessions"][0]["devices"] == std::vector<int>{2, 0});
  CHECK(json["sessions"][0]["device_memory"] == 5'000'000'000);
  CHECK(json["sessions"][0]["tenant"] == "alice");
  CHECK(json["sessions"][0]["swap"]["out"] == 7'000'000'000);
  CHECK(json["swap_limit"] == 9'000'000'000);
}

TEST_CASE("Status shows how a device preempts, or why it does not") {
  proto::Status status = ExampleStatus();
  // A daemon that says nothing about it has none.
  CHECK(nlohmann::json::parse(StatusJson(status))["devices"][0]["preemption"] == "none");
  proto::PreemptionStatus* const preemption = status.mutable_devices(0)->mutable_preemption();
  preemption->set_mode("time-slice groups");
  preemption->set_latency_us(190);
  preemption->set_memory(549'000'000);
  CHECK(StatusText(status).find("time-slice groups, 190 us") != std::string::npos);
  nlohmann::json device = nlohmann::json::parse(StatusJson(status))["devices"][0];
  CHECK(device["preemption"] == "time-slice groups");
  CHECK(device["preemption_us"] == 190);
  CHECK(device["preemption_memory"] == 549'000'000);
  CHECK(device["preemption_reason"] == "");
  CHECK(device["beside_native"] == false);
  CHECK(StatusText(status, 200).find("outside of DetShare") == std::string::npos);
  status.mutable_devices(0)->set_beside_native(true);
  CHECK(nlohmann::json::parse(StatusJson(status))["devices"][0]["beside_native"] == true);
  CHECK(StatusText(status, 200).find("Device 0 also runs programs outside of DetShare") !=
        std::string::npos);
  preemption->Clear();
  preemption->set_mode("none");
  preemption->set_reason("the driver does not honour time slices");
  CHECK(StatusText(status).find(
            "Device 0 has no preemption: the driver does not honour time slices") !=
        std::string::npos);
  device = nlohmann::json::parse(StatusJson(status))["devices"][0];
  CHECK(device["preemption"] == "none");
  CHECK(device["preemption_us"] == 0);
  CHECK(device["preemption_reason"] == "the driver does not honour time slices");
}

TEST_CASE("A bound session is marked where its partition is shown") {
  proto::Status status = ExampleStatus();
  proto::SessionStatus* const session = status.add_sessions();
  session->set_partition("urgent");
  CHECK(PartitionText(*session) == "urgent");
  CHECK(nlohmann::json::parse(StatusJson(status))["sessions"][0]["bound"] == false);
  session->set_bound(true);
  CHECK(StatusText(status).find("urgent (bound)") != std::string::npos);
  const auto json = nlohmann::json::parse(StatusJson(status));
  CHECK(json["sessions"][0]["partition"] == "urgent");
  CHECK(json["sessions"][0]["bound"] == true);
}

TEST_CASE("Status stays valid JSON whatever a client's name is") {
  proto::Status status = ExampleStatus();
  status.add_sessions()->set_program("a\"b\\c\n\x01");
  CHECK(nlohmann::json::parse(StatusJson(status))["sessions"][0]["program"] == "a\"b\\c\n\x01");
}

}  // namespace
}  // namespace detshare::ctl
