#include "tools/slurm/options.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace detshare::slurm {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

std::string Complaint(const std::string& text) {
  return std::string(ParseJobOptions(text).status().message());
}

TEST_CASE("The option names settings of the job's endpoint") {
  const auto options = ParseJobOptions("class=latency,memory=20G,slo-tpot=40ms,sms=4..16");
  REQUIRE(options.ok());
  CHECK(options->settings ==
        Settings{{"class", "latency"}, {"memory", "20G"}, {"slo-tpot", "40ms"}, {"sms", "4..16"}});
}

TEST_CASE("A job may name several devices, and each other setting once") {
  const auto options = ParseJobOptions("device=0,class=batch,device=GPU-8a1b");
  REQUIRE(options.ok());
  CHECK(options->settings == Settings{{"device", "0"}, {"class", "batch"}, {"device", "GPU-8a1b"}});
  CHECK(Complaint("memory=1G,memory=2G") == "--detshare names memory too often");
  std::string many = "device=0";
  for (int i = 0; i < 64; ++i) many += ",device=1";
  CHECK(Complaint(many) == "--detshare names device too often");
}

TEST_CASE("A mistake in the option is named, with what is allowed") {
  CHECK(absl::StartsWith(Complaint(""), "--detshare takes NAME=VALUE[,NAME=VALUE...], not \"\""));
  CHECK(absl::StartsWith(Complaint("latency"), "--detshare takes NAME=VALUE"));
  CHECK(absl::StartsWith(Complaint("memory="), "--detshare takes NAME=VALUE"));
  CHECK(absl::StartsWith(Complaint("class=batch,"), "--detshare takes NAME=VALUE"));
  CHECK(absl::StartsWith(Complaint("mem=20G"), "--detshare does not know \"mem\"; names: class,"));
  CHECK(Complaint("class=urgent") == "--detshare: class is latency or batch, not \"urgent\"");
  CHECK(Complaint("memory=20X") ==
        "--detshare: memory is a size such as 20G, or 0 for no limit, not \"20X\"");
  CHECK(Complaint("slo-ttft=-1s") ==
        "--detshare: slo-ttft is a duration such as 200ms, not \"-1s\"");
  for (const char* wrong :
       {"weight=0", "weight=nan", "weight=inf", "exclusive=yes", "sms=..", "sms=4..x", "devices=-1",
        "sessions=many", "device=a/b", "slo-latency=inf"}) {
    INFO(wrong);
    CHECK(absl::StrContains(Complaint(wrong), absl::StrCat("--detshare: ")));
  }
}

TEST_CASE("A complaint shows no control characters of the user") {
  CHECK(absl::StrContains(Complaint("\x1b[2J\n=1"), "\"?[2J?\""));
}

TEST_CASE("The option has at most 1024 characters") {
  CHECK(Complaint(std::string(1025, 'a')) == "--detshare takes at most 1024 characters, not 1025");
  CHECK_FALSE(absl::StrContains(Complaint(std::string(1024, 'a')), "at most"));
}

}  // namespace
}  // namespace detshare::slurm
