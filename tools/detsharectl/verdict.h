// Judges the runs of `detsharectl verify`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/detsharectl/digest_log.h"

namespace detshare::ctl {

// Where the neighbours' kernels are while the program runs.
enum class Sharing {
  kNone,   // there are none yet: a run with which the others are compared
  kSpace,  // beside the program's kernels, on other SMs or on the same ones
  kTurns,  // in other turns: the program's tenant is exclusive
};

// One run of the program.
struct ProgramRun {
  Sharing sharing = Sharing::kNone;
  int code = 0;  // the program's exit code
  DigestLog log;
};

// How a run differs from the first run.
struct Departure {
  std::optional<Difference> difference;  // none: the reads are equal
  int expected_code = 0, code = 0;
};

// None if the runs read the same bits and end with the same exit code.
std::optional<Departure> DepartureOf(const ProgramRun& expected, const ProgramRun& run);
// The departure in words: the first read that differs and the kernel before it, or the exit codes.
std::string Describe(const Departure& departure);

// The values are the exit codes of `verify`. 2 is the exit code if the program could not be run.
enum class Kind {
  kEqual = 0,            // equal without and beside neighbours
  kDifferent = 1,        // a defect: order of execution does not explain the difference
  kNotReproducible = 3,  // the runs without neighbours differ already
  kEqualInTurns = 4,     // equal without neighbours and in turns, different in space
};

struct Verdict {
  Kind kind = Kind::kEqual;
  // The first run of each kind of sharing that departs from the first run.
  std::optional<Departure> none, space, turns;
};

// Judges runs, of which the first has no neighbours. With departures in space and without runs in turns, the
// result is kDifferent. It is also kDifferent if a run in space ends with another exit code
// although its first difference is not in the bytes of a read: another order of blocks does not
// explain that.
Verdict Judge(const std::vector<ProgramRun>& runs);

}  // namespace detshare::ctl
