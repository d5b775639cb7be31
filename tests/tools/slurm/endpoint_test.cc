#include "tools/slurm/endpoint.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "policy/config/config.h"
#include "tests/tools/slurm/scripts.h"

namespace detshare::slurm {
namespace {

TEST_CASE("A tenant carries the user and the job") {
  CHECK(TenantName("alice", 42) == "slurm-alice-42");
  CHECK(EndpointName(42) == "slurm-42");
}

TEST_CASE("Every user's name makes a name that a tenant may have") {
  CHECK(TenantName("DOMAIN\\al ice", 42) == "slurm-DOMAIN_al_ice-42");
  for (const std::string& user : {std::string(), std::string(200, 'x'), std::string("\n/..\0", 5)})
    CHECK(IsTenantName(TenantName(user, UINT32_MAX)));
}

TEST_CASE("An endpoint is opened with the job's settings") {
  Scripts scripts;
  scripts.Write("detsharectl", "for word; do echo \"$word\"; done >calls");
  const JobOptions options = {{{"class", "latency"}, {"memory", "20G"}}};
  REQUIRE(OpenEndpoint(scripts.arguments(), 42, "alice", options).ok());
  CHECK(scripts.Read("calls") ==
        absl::StrCat("--socket\n", scripts.Path("d.sock"),
                     "\nendpoint\nopen\nslurm-42\n--tenant\nslurm-alice-42\n--job=42\n"
                     "--user=alice\n--class=latency\n--memory=20G\n"));
}

TEST_CASE("A user's name with blanks or quotes costs no job its endpoint") {
  Scripts scripts;
  scripts.Write("detsharectl", "for word; do echo \"$word\"; done >calls");
  REQUIRE(OpenEndpoint(scripts.arguments(), 42, "DOMAIN+al 'ice", {}).ok());
  CHECK(absl::StrContains(scripts.Read("calls"), "\n--user=DOMAIN+al__ice\n"));
}

TEST_CASE("A refusal of the daemon is told from a daemon that does not reply") {
  Scripts scripts;
  scripts.Write("detsharectl",
                "echo 'detsharectl: detshared refused: there is no device 9' >&2; exit 1");
  const absl::Status refused = OpenEndpoint(scripts.arguments(), 42, "alice", {});
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(refused.message() == "detshared refused: there is no device 9");
  scripts.Write("detsharectl",
                "printf 'detsharectl: no detshared replies\\nStart it.\\n' >&2; exit 3");
  const absl::Status gone = OpenEndpoint(scripts.arguments(), 42, "alice", {});
  CHECK(absl::IsUnavailable(gone));
  CHECK(gone.message() == "no detshared replies");
}

TEST_CASE("Closing an endpoint returns what it has used") {
  Scripts scripts;
  scripts.Write("detsharectl",
                "echo '{\"sessions\": 3, \"gpu_seconds\": 1.5, \"peak_memory\": 4096}'");
  const auto use = CloseEndpoint(scripts.arguments(), 42);
  REQUIRE(use.ok());
  CHECK(use->sessions == 3);
  CHECK(use->gpu_seconds == 1.5);
  CHECK(use->peak_memory == 4096);
}

TEST_CASE("Figures that are missing or malformed are 0") {
  for (const char* text : {"", "[]", "{", "{\"sessions\": \"many\", \"gpu_seconds\": null}"}) {
    const EndpointUse use = ParseUse(text);
    CHECK(use.sessions == 0);
    CHECK(use.gpu_seconds == 0);
    CHECK(use.peak_memory == 0);
  }
}

}  // namespace
}  // namespace detshare::slurm
