#include "tools/detsharectl/sessions.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace detshare::ctl {
namespace {

proto::Status ExampleSessions() {
  proto::Status status;
  status.set_policy("fair");
  proto::DeviceStatus* const device = status.add_devices();
  device->set_name("Some GPU");
  proto::PartitionStatus* const partition = device->add_partitions();
  partition->set_name("sm0-63");
  partition->set_sm_count(64);
  partition->set_sessions(2);
  for (const auto& [id, tenant] :
       {std::pair{7, "alice"}, std::pair{8, "alice"}, std::pair{9, "b"}}) {
    proto::SessionStatus* const session = status.add_sessions();
    session->set_session(id);
    session->set_tenant(tenant);
    session->set_device_memory(1 << 30);
    session->set_operations(5);
  }
  return status;
}

TEST_CASE("Sessions are listed, and are the same objects as in the status") {
  CHECK(SessionsText(proto::Status()) == "No sessions.\n");
  CHECK(SessionsText(ExampleSessions()).find("alice") != std::string::npos);
  const auto json = nlohmann::json::parse(SessionsJson(ExampleSessions()));
  REQUIRE(json.size() == 3);
  CHECK(json[2]["tenant"] == "b");
  CHECK(nlohmann::json::parse(SessionsJson(proto::Status())).empty());
}

TEST_CASE("An engine that does not reply may have sessions that are not listed") {
  proto::Status status;
  status.add_engines()->set_problem("it does not reply");
  CHECK(SessionsText(status) == "No sessions in engines that reply.\n");
}

TEST_CASE("A tenant's use is that of its sessions, and tenants without sessions are listed, too") {
  proto::Tenants tenants;
  proto::TenantSetting* const setting = tenants.add_tenants();
  setting->set_name("idle");
  setting->set_tenant_class("batch");
  setting->set_weight(2);
  const auto json = nlohmann::json::parse(TenantUseJson(ExampleSessions(), tenants));
  REQUIRE(json.size() == 3);
  CHECK(json[0]["name"] == "alice");
  CHECK(json[0]["sessions"] == 2);
  CHECK(json[0]["device_memory"] == uint64_t{2} << 30);
  CHECK(json[0]["operations"] == 10);
  CHECK(json[2]["name"] == "idle");
  CHECK(json[2]["class"] == "batch");
  CHECK(json[2]["sessions"] == 0);
  CHECK(TenantUseText(proto::Status(), proto::Tenants()).find("No tenant") == 0);
}

TEST_CASE("Partitions are listed with their devices") {
  CHECK(PartitionsText(ExampleSessions(), /*all=*/true).find("policy fair") == 0);
  proto::Status status = ExampleSessions();
  status.mutable_devices(0)->add_partitions()->set_name("sm64-131");
  CHECK(PartitionsText(status, /*all=*/true).find("sm64-131") != std::string::npos);
  const std::string used = PartitionsText(status, /*all=*/false);
  CHECK(used.find("sm0-63") != std::string::npos);
  CHECK(used.find("sm64-131") == std::string::npos);
  CHECK(used.find("1 partition without sessions") != std::string::npos);
  const auto json = nlohmann::json::parse(PartitionsJson(ExampleSessions()));
  REQUIRE(json.size() == 1);
  CHECK(json[0]["device"] == 0);
  CHECK(json[0]["name"] == "sm0-63");
  CHECK(json[0]["sessions"] == 2);
}

TEST_CASE("The argument of kill is session numbers, or one tenant") {
  CHECK(ToEndRequest({"3", "4"}, "")->sessions_size() == 2);
  CHECK(ToEndRequest({"alice"}, "")->tenant() == "alice");
  CHECK(ToEndRequest({}, "3")->tenant() == "3");
  for (const auto& [who, tenant] : {std::pair<std::vector<std::string>, std::string>{{}, ""},
                                    {{"3"}, "alice"},
                                    {{"3", "alice"}, ""},
                                    {{"alice", "bob"}, ""},
                                    {{"3", "0"}, ""},
                                    {{"3", "-1"}, ""}}) {
    CHECK(ToEndRequest(who, tenant).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("Sessions and tenants show their owners, if there are any") {
  proto::Status status = ExampleSessions();
  CHECK(SessionsText(status).find("OWNER") == std::string::npos);
  CHECK(TenantUseText(status, {}).find("OWNER") == std::string::npos);
  CHECK(nlohmann::json::parse(SessionsJson(status))[0]["owner"].is_null());
  proto::SessionStatus* const session = status.mutable_sessions(0);
  session->set_endpoint("box");
  session->mutable_owner()->set_namespace_("models");
  session->mutable_owner()->set_pod("chat-0");
  session->mutable_owner()->set_container("server");
  proto::TenantUse* const tenant = status.add_tenants();
  tenant->set_name("b");
  tenant->mutable_owner()->set_user("bob");
  tenant->mutable_owner()->set_job("17");
  CHECK(SessionsText(status).find("models/chat-0/server") != std::string::npos);
  CHECK(TenantUseText(status, {}).find("bob, job 17") != std::string::npos);
  const auto json = nlohmann::json::parse(SessionsJson(status));
  CHECK(json[0]["endpoint"] == "box");
  CHECK(json[0]["owner"]["pod"] == "chat-0");
  CHECK(json[0]["owner"]["job"] == "");
  const auto tenants = nlohmann::json::parse(TenantUseJson(status, {}));
  CHECK(tenants[0]["owner"].is_null());
  CHECK(tenants[1]["owner"]["user"] == "bob");
}

}  // namespace
}  // namespace detshare::ctl
