#include "tools/detsharectl/verdict.h"

#include <catch2/catch.hpp>

namespace detshare::ctl {
namespace {

// A run with two reads of one stream.
ProgramRun Run(Sharing sharing, const char* first = "aa", const char* second = "bb", int code = 0) {
  DigestProcess process{"program", {}};
  process.reads.push_back({"s1", 0, 8, first, "First"});
  process.reads.push_back({"s1", 1, 8, second, "Second"});
  return {sharing, code, {process}};
}

const ProgramRun kAlone = Run(Sharing::kNone);
const ProgramRun kSpace = Run(Sharing::kSpace);
const ProgramRun kTurns = Run(Sharing::kTurns);

TEST_CASE("A program whose runs are equal alone and in space is equal") {
  const Verdict verdict = Judge({kAlone, kAlone, kSpace, kSpace});
  CHECK(verdict.kind == Kind::kEqual);
  CHECK_FALSE(verdict.none.has_value());
  CHECK_FALSE(verdict.space.has_value());
  CHECK_FALSE(verdict.turns.has_value());
}

TEST_CASE("A program whose runs alone differ is not reproducible") {
  const Verdict verdict = Judge({kAlone, Run(Sharing::kNone, "aa", "cc")});
  CHECK(verdict.kind == Kind::kNotReproducible);
  REQUIRE(verdict.none.has_value());
  CHECK(verdict.none->difference->read.kernel == "Second");
  CHECK(Judge({kAlone, Run(Sharing::kNone, "aa", "bb", 1)}).kind == Kind::kNotReproducible);
  // Whatever its runs beside others do.
  CHECK(Judge({kAlone, Run(Sharing::kNone, "aa", "cc"), Run(Sharing::kSpace, "aa", "cc"),
               Run(Sharing::kTurns, "aa", "cc")})
            .kind == Kind::kNotReproducible);
}

TEST_CASE("A difference in space that turns avoid is named by its first kernel and read") {
  const Verdict verdict = Judge({kAlone, kAlone, kSpace, Run(Sharing::kSpace, "aa", "cc"),
                                 Run(Sharing::kSpace, "dd", "cc"), kTurns, kTurns});
  CHECK(verdict.kind == Kind::kEqualInTurns);
  REQUIRE(verdict.space.has_value());
  CHECK(verdict.space->difference->read.number == 1);
  CHECK(Describe(*verdict.space) == "read 2 of stream 1, 8 bytes, after the kernel Second");
  CHECK_FALSE(verdict.turns.has_value());
}

TEST_CASE("A program that differs in space and in turns is different") {
  const Verdict verdict = Judge(
      {kAlone, kAlone, Run(Sharing::kSpace, "aa", "cc"), kTurns, Run(Sharing::kTurns, "dd", "bb")});
  CHECK(verdict.kind == Kind::kDifferent);
  REQUIRE(verdict.turns.has_value());
  CHECK(verdict.space->difference->read.kernel == "Second");
  CHECK(verdict.turns->difference->read.kernel == "First");
}

TEST_CASE("A difference in space without runs in turns is different") {
  CHECK(Judge({kAlone, kAlone, Run(Sharing::kSpace, "aa", "cc")}).kind == Kind::kDifferent);
}

TEST_CASE("The order of blocks explains another exit code only if a read differs before it") {
  CHECK(Judge({kAlone, Run(Sharing::kSpace, "aa", "cc", 1), kTurns}).kind == Kind::kEqualInTurns);
  const Verdict failed = Judge({kAlone, Run(Sharing::kSpace, "aa", "bb", 1), kTurns});
  CHECK(failed.kind == Kind::kDifferent);
  CHECK(Describe(*failed.space) == "the program ended with exit code 1 instead of 0");
  ProgramRun short_run = Run(Sharing::kSpace, "aa", "bb", 1);
  short_run.log[0].reads.pop_back();
  CHECK(Judge({kAlone, short_run, kTurns}).kind == Kind::kDifferent);
}

}  // namespace
}  // namespace detshare::ctl
