#include "tools/kubernetes/dra/parameters.h"

#include <catch2/catch.hpp>

namespace detshare::kubernetes {
namespace {

using Json = nlohmann::json;

Json TypicalParameters() {
  return Json::parse(R"({
    "apiVersion": "gpu.detshare.io/v1alpha1", "kind": "ClaimParameters",
    "class": "latency", "weight": 2.5, "exclusive": true, "maxMultiprocessors": 66,
    "pinnedMemory": "4Gi", "objectives": {"latency": "5ms", "ttft": "1s", "tpot": "40ms"}})");
}

std::string ParseError(const Json& parameters, Typed typed = Typed::kYes) {
  const auto parsed = ParseParameters(parameters, "parameters", typed);
  CHECK_FALSE(parsed.ok());
  return std::string(parsed.status().message());
}

Json With(const char* name, const Json& value) {
  Json parameters = TypicalParameters();
  parameters[name] = value;
  return parameters;
}

TEST_CASE("Parameters become the settings of a tenant") {
  const auto settings = ParseParameters(TypicalParameters(), "parameters", Typed::kYes);
  REQUIRE(settings.ok());
  CHECK(settings->tenant_class() == "latency");
  CHECK(settings->weight() == 2.5);
  CHECK(settings->exclusive());
  CHECK(settings->max_sms() == 66);
  CHECK(settings->pinned_memory() == 4ull << 30);
  CHECK(settings->slo_latency_ns() == 5'000'000);
  CHECK(settings->slo_ttft_ns() == 1'000'000'000);
  CHECK(settings->slo_tpot_ns() == 40'000'000);
  CHECK_FALSE(settings->has_memory());
  // Parameters that are not there are not set.
  const auto none = ParseParameters(Json::object(), "parameters", Typed::kNo);
  REQUIRE(none.ok());
  CHECK(none->SerializeAsString().empty());
}

TEST_CASE("A wrong parameter gives an error that names the field and what it must be") {
  const std::pair<Json, std::string> wrong[] = {
      {With("class", "fast"), "parameters.class is latency or batch, not \"fast\""},
      {With("class", 1), "parameters.class is latency or batch, not 1"},
      {With("weight", 0), "parameters.weight is a number above 0, not 0"},
      {With("weight", "2"), "parameters.weight is a number above 0, not \"2\""},
      {With("exclusive", "on"), "parameters.exclusive is true or false, not \"on\""},
      {With("maxMultiprocessors", 1.5),
       "parameters.maxMultiprocessors is a whole number above 0, not 1.5"},
      {With("maxMultiprocessors", -1),
       "parameters.maxMultiprocessors is a whole number above 0, not -1"},
      {With("pinnedMemory", "4GB"),
       "parameters.pinnedMemory is a quantity of bytes above 0, such as \"4Gi\", not \"4GB\""},
      {With("objectives", Json{{"tpot", "40"}}),
       "parameters.objectives.tpot is a time above 0 and up to 24h, such as \"40ms\", not \"40\""},
      {With("objectives", Json{{"p99", "4ms"}}),
       "parameters.objectives has no field \"p99\"; its fields are latency, ttft, tpot"},
      {With("memory", "4Gi"),
       "parameters has no field \"memory\"; its fields are apiVersion, kind, class, weight, "
       "exclusive, maxMultiprocessors, pinnedMemory, objectives"},
      {With("kind", "GpuConfig"), "parameters.kind is ClaimParameters, not \"GpuConfig\""},
      {With("apiVersion", "gpu.detshare.io/v2"),
       "parameters.apiVersion is gpu.detshare.io/v1alpha1, not \"gpu.detshare.io/v2\""},
      {Json::array(), "parameters is an object, not []"}};
  for (const auto& [parameters, error] : wrong) CHECK(ParseError(parameters) == error);
  Json untyped = TypicalParameters();
  untyped.erase("kind");
  CHECK(ParseError(untyped) == "parameters.kind is missing: it is ClaimParameters");
  // Text of a user is shown in part, and as plain characters.
  CHECK(ParseError(With("class", std::string(500, 'x'))).size() < 150);
  CHECK(ParseError(With("class", "\x1b[31m")).find('\x1b') == std::string::npos);
}

TEST_CASE("Settings conflict where both have a field with different values") {
  proto::TenantSetting a, b;
  a.set_tenant_class("batch");
  a.set_weight(1);
  b.set_weight(1);
  b.set_slo_tpot_ns(5);
  CHECK(ConflictOf(a, b) == "");
  b.set_tenant_class("latency");
  CHECK(ConflictOf(a, b) == "class");
  a.clear_tenant_class();
  a.set_slo_tpot_ns(6);
  CHECK(ConflictOf(a, b) == "objectives.tpot");
}

}  // namespace
}  // namespace detshare::kubernetes
