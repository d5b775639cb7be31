#include "tools/slurm/accounting.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/tools/slurm/scripts.h"

namespace detshare::slurm {
namespace {

EndpointUse SomeUse() { return {2, 12.34, uint64_t{512} << 20}; }

constexpr char kLine[] = "detshare n1: gpu_seconds=12.3 peak_mib=512.0 sessions=2";

TEST_CASE("The figures of a job are one line with the node's name") {
  CHECK(UseText("N1", SomeUse()) == kLine);
}

TEST_CASE("A job's comment keeps what others wrote there, and one line of each node") {
  CHECK(AddUse("", "n1", SomeUse()) == kLine);
  CHECK(AddUse("ticket 7; urgent", "n1", SomeUse()) == absl::StrCat("ticket 7; urgent; ", kLine));
  const std::string two = AddUse(kLine, "n2", SomeUse());
  CHECK(two == absl::StrCat(kLine, "; detshare n2: gpu_seconds=12.3 peak_mib=512.0 sessions=2"));
  CHECK(AddUse(absl::StrCat("detshare n1: gpu_seconds=9; ", "x"), "n1", SomeUse()) ==
        absl::StrCat("x; ", kLine));
}

TEST_CASE("The figures are added to the job's comment, which sacctmgr turns into lower case") {
  Scripts scripts;
  scripts.Write("sacct", "cat comment");
  scripts.Write("sacctmgr",
                "echo \"$@\" >>calls; echo \"${6#AdminComment=}\" | tr A-Z a-z >comment");
  scripts.Put("comment", "Ticket 7\n");
  REQUIRE(RecordUse(scripts.arguments(), 42, "n1", SomeUse()).ok());
  CHECK(scripts.Read("calls") ==
        absl::StrCat("--immediate modify job JobID=42 set AdminComment=ticket 7; ", kLine, "\n"));
}

TEST_CASE("A comment that another node overwrites is written once more") {
  Scripts scripts;
  scripts.Write("sacct", "cat comment");
  scripts.Write("sacctmgr",
                "echo call >>calls; if [ -e lost ]; then echo \"${6#AdminComment=}\" >comment; "
                "else touch lost; echo \"detshare n2: gpu_seconds=1\" >comment; fi");
  scripts.Put("comment", "\n");
  REQUIRE(RecordUse(scripts.arguments(), 42, "n1", SomeUse()).ok());
  CHECK(scripts.Read("calls") == "call\ncall\n");
  CHECK(scripts.Read("comment") == absl::StrCat("detshare n2: gpu_seconds=1; ", kLine, "\n"));
}

TEST_CASE("Without accounting, the error says what Slurm says") {
  Scripts scripts;
  scripts.Write("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1");
  const absl::Status recorded = RecordUse(scripts.arguments(), 42, "n1", SomeUse());
  CHECK(absl::IsUnavailable(recorded));
  CHECK(recorded.message() ==
        absl::StrCat(scripts.arguments().slurm, "/sacct: Slurm accounting storage is disabled"));
}

}  // namespace
}  // namespace detshare::slurm
