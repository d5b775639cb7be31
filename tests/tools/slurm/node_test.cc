#include "tools/slurm/node.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/slurm/scripts.h"

namespace detshare::slurm {
namespace {

// A node whose daemon is a script: it opens and closes endpoints as directories, and does not reply
// while the file `down` exists.
class FakeNode {
 public:
  FakeNode() {
    scripts.Write("detsharectl", R"(
      while [ "$1" != endpoint ]; do shift; done
      echo "$2 $3" >>calls
      if [ -e down ]; then echo 'detsharectl: no detshared replies' >&2; exit 3; fi
      case $2 in
        open) mkdir -p endpoints/$3 ;;
        close)
          if ! rmdir endpoints/$3 2>/dev/null; then
            echo 'detsharectl: detshared refused: there is no endpoint' >&2; exit 1
          fi
          echo '{"sessions": 1, "gpu_seconds": 2.5, "peak_memory": 1048576}' ;;
      esac)");
    scripts.Write("sacct", "echo 'there is no accounting' >&2; exit 1");
  }
  // As each hook of the plugin, in a process of its own, has it.
  Node node() {
    return Node(scripts.arguments(), "n1",
                [this](const std::string& line) { absl::StrAppend(&log, line, "\n"); });
  }
  bool Open(const std::string& endpoint) {
    return std::filesystem::exists(scripts.Path("endpoints/" + endpoint));
  }
  size_t Remembered() {
    size_t files = 0;
    if (!std::filesystem::exists(scripts.Path("state"))) return 0;
    for (const auto& file : std::filesystem::directory_iterator(scripts.Path("state")))
      files += file.path().filename() != "lock";
    return files;
  }

  Scripts scripts;
  std::string log;
};

TEST_CASE("A job has an endpoint from its begin to its end, and its figures are logged") {
  FakeNode fake;
  fake.node().Begin(7, "alice", "class=batch");
  CHECK(fake.Open("slurm-7"));
  fake.node().End(7);
  CHECK_FALSE(fake.Open("slurm-7"));
  CHECK(absl::StrContains(
      fake.log, "job 7 has ended: detshare n1: gpu_seconds=2.5 peak_mib=1.0 sessions=1\n"));
  CHECK(absl::StrContains(fake.log, "not in the accounting"));
  CHECK(fake.Remembered() == 0);
}

TEST_CASE("Nothing is done for a job without the option") {
  FakeNode fake;
  fake.node().Begin(7, "alice", std::nullopt);
  const auto shown = fake.node().Show(7, "alice", std::nullopt);
  REQUIRE(shown.ok());
  CHECK_FALSE(*shown);
  fake.node().End(7);
  CHECK(fake.scripts.Read("calls").empty());
  CHECK(fake.log.empty());
}

TEST_CASE("A job that gets no endpoint learns the reason in its tasks, until it is requeued") {
  FakeNode fake;
  fake.scripts.Put("down", "");
  fake.node().Begin(7, "alice", "class=batch");
  const auto shown = fake.node().Show(7, "alice", "class=batch");
  REQUIRE_FALSE(shown.ok());
  CHECK(shown.status().message() == "job 7 gets no GPU from DetShare on n1: no detshared replies");
  std::filesystem::remove(fake.scripts.Path("down"));
  fake.node().End(7);
  CHECK(fake.Remembered() == 0);
  fake.node().Begin(7, "alice", "class=batch");
  CHECK(fake.Open("slurm-7"));
}

TEST_CASE("A job whose text is wrong learns the reason, though the submission did not check it") {
  FakeNode fake;
  fake.node().Begin(7, "alice", "memory=lots");
  const auto shown = fake.node().Show(7, "alice", "memory=lots");
  REQUIRE_FALSE(shown.ok());
  CHECK(absl::StrContains(shown.status().message(), "memory is a size such as 20G"));
  CHECK(fake.scripts.Read("calls").empty());
}

TEST_CASE("A step that asks, or whose job had no prolog, learns why there is no endpoint") {
  FakeNode fake;
  fake.scripts.Put("down", "");
  const auto shown = fake.node().Show(7, "alice", "class=batch");
  REQUIRE_FALSE(shown.ok());
  CHECK(shown.status().message() == "job 7 gets no GPU from DetShare on n1: no detshared replies");
}

TEST_CASE("An endpoint that cannot be closed while the daemon is down is closed with a later job") {
  FakeNode fake;
  fake.node().Begin(7, "alice", "class=batch");
  fake.scripts.Put("down", "");
  fake.node().End(7);
  CHECK(fake.Open("slurm-7"));
  CHECK(absl::StrContains(fake.log, "the endpoint of job 7 is closed later: no detshared replies"));
  std::filesystem::remove(fake.scripts.Path("down"));
  fake.node().Begin(8, "bob", std::nullopt);
  CHECK_FALSE(fake.Open("slurm-7"));
  CHECK(fake.Remembered() == 0);
}

TEST_CASE("A requeued job gets a new endpoint, also if its first one could not be closed") {
  FakeNode fake;
  fake.node().Begin(7, "alice", "class=batch");
  fake.scripts.Put("down", "");
  fake.node().End(7);
  std::filesystem::remove(fake.scripts.Path("down"));
  fake.node().Begin(7, "alice", "class=batch");
  CHECK(fake.scripts.Read("calls") == "open slurm-7\nclose slurm-7\nclose slurm-7\nopen slurm-7\n");
  // Later jobs leave the new one alone.
  fake.node().Begin(8, "bob", std::nullopt);
  CHECK(fake.Open("slurm-7"));
  CHECK(fake.Remembered() == 0);
}

TEST_CASE("A prolog that runs twice leaves one endpoint") {
  FakeNode fake;
  fake.node().Begin(7, "alice", "class=batch");
  fake.node().Begin(7, "alice", "class=batch");
  fake.node().End(7);
  CHECK_FALSE(fake.Open("slurm-7"));
  fake.node().End(7);
  CHECK(fake.Remembered() == 0);
}

}  // namespace
}  // namespace detshare::slurm
