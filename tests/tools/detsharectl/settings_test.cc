#include "tools/detsharectl/settings.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace detshare::ctl {
namespace {

proto::Policies TwoPolicies() {
  proto::Policies policies;
  policies.mutable_current()->set_name("priority");
  (*policies.mutable_current()->mutable_parameters())["window"] = "3ms";
  proto::PolicyInfo* const priority = policies.add_policies();
  priority->set_name("priority");
  for (const char* name : {"window", "grace"}) {
    proto::ParameterInfo* const parameter = priority->add_parameters();
    parameter->set_name(name);
    parameter->set_default_value("1ms");
    parameter->set_min("0s");
    parameter->set_max("1s");
    parameter->set_help("how long");
  }
  priority->set_purpose("latency beside batch");
  policies.add_policies()->set_name("whole");
  return policies;
}

TEST_CASE("Policies are listed with the active one and the values in force") {
  const std::string text = PoliciesText(TwoPolicies());
  CHECK(text.find("*  priority  latency beside batch") != std::string::npos);
  CHECK(text.find("Set for priority: window=3ms\n") != std::string::npos);
  CHECK(text.find("whole") != std::string::npos);
  const auto json = nlohmann::json::parse(PoliciesJson(TwoPolicies()));
  CHECK(json[0]["decides"] == true);
  CHECK(json[0]["purpose"] == "latency beside batch");
  CHECK(json[0]["parameters"][0]["value"] == "3ms");
  CHECK(json[1]["decides"] == false);
}

TEST_CASE("One policy is shown with what its parameters mean") {
  const auto current = PolicyText(TwoPolicies(), "");
  REQUIRE(current.ok());
  CHECK(current->find("priority (in force)") == 0);
  CHECK(current->find("how long") != std::string::npos);
  const auto whole = PolicyText(TwoPolicies(), "whole");
  REQUIRE(whole.ok());
  CHECK(whole->find("no parameters") != std::string::npos);
  const auto unknown = PolicyText(TwoPolicies(), "magic");
  CHECK(absl::IsNotFound(unknown.status()));
  CHECK(std::string(unknown.status().message()).find("priority, whole") != std::string::npos);
}

TEST_CASE("A shared object in force is marked, and shown with the parameters that are set") {
  proto::Policies policies = TwoPolicies();
  *policies.mutable_current() = {};
  policies.mutable_current()->set_name("/etc/own.so");
  policies.add_policies()->set_name("/etc/own.so");
  CHECK(PoliciesText(policies).find("*  /etc/own.so") != std::string::npos);
  CHECK(PolicyText(policies, "")->find("/etc/own.so (in force)\nIts parameters are known to") == 0);
  (*policies.mutable_current()->mutable_parameters())["window"] = "3ms";
  policies.mutable_policies(2)->add_parameters()->set_name("window");
  const std::string shown = *PolicyText(policies, "");
  CHECK(shown.find("window") < shown.find("3ms"));
  CHECK(shown.find("DEFAULT") == std::string::npos);
  CHECK(nlohmann::json::parse(PoliciesJson(policies))[2]["decides"] == true);
}

TEST_CASE("Parameters are NAME=VALUE") {
  proto::PolicySetting setting;
  CHECK(AddParameters({"a=1", "b=x=y"}, &setting).ok());
  CHECK(setting.parameters().at("a") == "1");
  CHECK(setting.parameters().at("b") == "x=y");
  CHECK_FALSE(AddParameters({"a"}, &setting).ok());
  CHECK_FALSE(AddParameters({"=1"}, &setting).ok());
  CHECK(AddParameters({"c=1", "c=2"}, &setting).message() == "--param: c is given twice");
}

TEST_CASE("Only the options of the command line are sent for a tenant") {
  TenantFlags flags;
  flags.name = "serve";
  flags.slo_tpot = "30ms";
  flags.sms = "32..132";
  const auto setting = ToSetting(flags);
  REQUIRE(setting.ok());
  CHECK(setting->slo_tpot_ns() == 30'000'000);
  CHECK(setting->min_sms() == 32);
  CHECK(setting->max_sms() == 132);
  CHECK_FALSE(setting->has_weight());
  CHECK_FALSE(setting->has_exclusive());
  CHECK_FALSE(setting->has_tenant_class());
  CHECK_FALSE(setting->has_slo_ttft_ns());
}

TEST_CASE("A tenant is made exclusive, and shared again") {
  TenantFlags flags;
  flags.name = "t";
  for (const bool exclusive : {true, false}) {
    flags.exclusive = exclusive ? "on" : "off";
    const auto setting = ToSetting(flags);
    REQUIRE(setting.ok());
    CHECK(setting->has_exclusive());
    CHECK(setting->exclusive() == exclusive);
  }
}

TEST_CASE("Bounds of SMs may be open") {
  TenantFlags flags;
  flags.name = "t";
  const auto bounds = [&](const std::string& text) {
    flags.sms = text;
    const auto setting = ToSetting(flags);
    return setting.ok() ? std::pair(setting->min_sms(), setting->max_sms()) : std::pair(-1, -1);
  };
  CHECK(bounds("32..") == std::pair(32, 0));
  CHECK(bounds("..64") == std::pair(0, 64));
  CHECK(bounds("64") == std::pair(64, 64));
  CHECK(bounds("..") == std::pair(-1, -1));
  CHECK(bounds("a..b") == std::pair(-1, -1));
}

TEST_CASE("Invalid values are refused with the allowed ones") {
  for (const auto& [field, text] :
       {std::pair(&TenantFlags::weight, "much"), std::pair(&TenantFlags::share, "half"),
        std::pair(&TenantFlags::exclusive, "yes"), std::pair(&TenantFlags::slo_tpot, "30"),
        std::pair(&TenantFlags::slo_ttft, "-1s"), std::pair(&TenantFlags::slo_latency, "inf")}) {
    TenantFlags flags;
    flags.name = "t";
    flags.*field = text;
    const auto setting = ToSetting(flags);
    CHECK_FALSE(setting.ok());
    CHECK(std::string(setting.status().message()).find(" is ") != std::string::npos);
  }
}

TEST_CASE("Tenants are listed with units") {
  proto::Tenants tenants;
  CHECK(TenantsText(tenants).find("No tenant") == 0);
  proto::TenantSetting* const tenant = tenants.add_tenants();
  tenant->set_name("serve");
  tenant->set_tenant_class("latency");
  tenant->set_weight(2);
  tenant->set_min_sms(32);
  tenant->set_slo_tpot_ns(30'000'000);
  const std::string text = TenantsText(tenants);
  CHECK(text.find("30ms") != std::string::npos);
  CHECK(text.find("32..") != std::string::npos);
  CHECK(nlohmann::json::parse(TenantsJson(tenants))[0]["slo_tpot_ns"] == 30'000'000);
}

}  // namespace
}  // namespace detshare::ctl
