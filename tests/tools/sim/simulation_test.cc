#include "tools/sim/simulation.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "policy/registry.h"
#include "tools/sim/report.h"

namespace detshare::sim {
namespace {

Trace Generated(const std::string& format, double rate, uint32_t services, double hours) {
  GenerateOptions options;
  options.format = format;
  options.rate = rate;
  options.services = services;
  options.hours = hours;
  return *GenerateTrace(options);
}

void Nothing(int, int) {}

TEST_CASE("The progress begins at 0 and comes after every device") {
  Options options;
  options.policies = {"fair", "whole"};
  options.devices = 3;
  options.hours = 0.001;
  std::vector<int> seen;
  REQUIRE(Simulate(options, Generated("azure-llm", 1, 1, 0.001), [&](int done, int all) {
            CHECK(all == 6);
            seen.push_back(done);
          }).ok());
  CHECK(seen == std::vector<int>{0, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("A simulation's report has the same bytes for any number of threads") {
  for (const char* format : {"azure-llm", "burstgpt", "azure-functions-2021"}) {
    const Trace trace = Generated(format, 8, 16, 0.02);
    std::string one;
    for (const int threads : {1, 5}) {
      Options options;
      options.policies = {"auto", "temporal", "whole"};
      options.placements = {"workload-aware", "round-robin"};
      options.devices = 6;
      options.trainings = 6;
      options.hours = 0.02;
      options.threads = threads;
      const std::string report = Csv(*Simulate(options, trace, Nothing));
      if (one.empty()) one = report;
      CHECK(report == one);
    }
    CHECK(one.size() > 500);
  }
}

TEST_CASE("Every request ends or is counted as unfinished, under every policy") {
  const Trace trace = Generated("azure-llm", 4, 8, 0.05);
  Options options;
  options.policies = policy::PolicyNames();
  options.devices = 4;
  options.trainings = 4;
  options.hours = 0.05;
  const auto summaries = *Simulate(options, trace, Nothing);
  for (const Summary& summary : summaries) {
    INFO(summary.policy);
    CHECK(summary.unplaced == 0);
    CHECK(summary.requests + summary.unfinished == trace.requests.size());
    CHECK(summary.unfinished < trace.requests.size() / 4);
    CHECK((summary.utilisation > 0.3 && summary.utilisation <= 2));
    CHECK((summary.fairness > 0 && summary.fairness <= 1.0001));
  }
}

TEST_CASE("Policy tpot-first has far fewer late tokens than temporal and fair") {
  const Trace trace = Generated("azure-llm", 4, 8, 0.1);
  Options options;
  options.policies = {"tpot-first", "temporal", "fair"};
  options.devices = 4;
  options.trainings = 4;
  options.hours = 0.1;
  options.slo_tpot = 0.015;
  const std::vector<Summary> summaries = *Simulate(options, trace, Nothing);
  CHECK(summaries[0].tpot_violations <= 0.7 * summaries[1].tpot_violations);
  CHECK(summaries[0].tpot_violations <= 0.7 * summaries[2].tpot_violations);
}

TEST_CASE("Programs that fit nowhere are counted") {
  Options options;
  options.policies = {"whole"};
  options.devices = 1;
  options.trainings = 5;
  options.hours = 0.01;
  const std::vector<Summary> summaries =
      *Simulate(options, Generated("azure-llm", 1, 1, 0.01), Nothing);
  CHECK(summaries[0].unplaced == 3);
  CHECK(summaries[0].programs == 3);
}

TEST_CASE("A shared object whose decisions had to be corrected gives a warning") {
  Options options;
  options.hours = 0.001;
  options.policies = {"fair", std::filesystem::absolute("tests/policy/wild_policy.so").string()};
  const auto summaries = *Simulate(options, Generated("azure-llm", 1, 1, 0.001), Nothing);
  CHECK(summaries[0].warning.empty());
  CHECK_THAT(summaries[1].warning, Catch::Contains("the number of grants is 1, not 2"));
}

TEST_CASE("Unknown policies, placements and parameters are refused with the existing ones") {
  const Trace trace = Generated("azure-llm", 1, 1, 0.01);
  Options options;
  options.hours = 0.01;
  options.policies = {"fastest"};
  CHECK(Simulate(options, trace, Nothing).status().code() == absl::StatusCode::kNotFound);
  options.policies = {"fair", "temporal"};
  options.parameters = {{"slice", "4ms"}};
  CHECK(Simulate(options, trace, Nothing).ok());
  options.parameters = {{"speed", "9"}};
  CHECK_FALSE(Simulate(options, trace, Nothing).ok());
  options.parameters = {{"slice", "soon"}};
  CHECK_FALSE(Simulate(options, trace, Nothing).ok());
  options.parameters = {};
  options.placements = {"nearest"};
  CHECK_FALSE(Simulate(options, trace, Nothing).ok());
}

}  // namespace
}  // namespace detshare::sim
