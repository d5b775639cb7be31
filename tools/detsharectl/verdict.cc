#include "tools/detsharectl/verdict.h"

#include "absl/strings/str_cat.h"

namespace detshare::ctl {
namespace {

// Whether another order of blocks can explain the departure. Another exit code alone can also be
// that of a program whose calls failed.
bool OrderMayExplain(const Departure& departure) {
  return departure.code == departure.expected_code ||
         (departure.difference.has_value() &&
          departure.difference->kind == Difference::Kind::kBytes);
}

}  // namespace

std::optional<Departure> DepartureOf(const ProgramRun& expected, const ProgramRun& run) {
  Departure departure{FirstDifference(expected.log, run.log), expected.code, run.code};
  if (!departure.difference.has_value() && run.code == expected.code) return std::nullopt;
  return departure;
}

std::string Describe(const Departure& departure) {
  if (departure.difference.has_value()) return Describe(*departure.difference);
  return absl::StrCat("the program ended with exit code ", departure.code, " instead of ",
                      departure.expected_code);
}

Verdict Judge(const std::vector<ProgramRun>& runs) {
  Verdict verdict;
  bool ran_in_turns = false, order_may_explain = true;
  for (const ProgramRun& run : runs) {
    ran_in_turns |= run.sharing == Sharing::kTurns;
    std::optional<Departure> departure = DepartureOf(runs.front(), run);
    if (!departure.has_value()) continue;
    if (run.sharing == Sharing::kSpace) order_may_explain &= OrderMayExplain(*departure);
    std::optional<Departure>& first = run.sharing == Sharing::kNone    ? verdict.none
                                      : run.sharing == Sharing::kSpace ? verdict.space
                                                                       : verdict.turns;
    if (!first.has_value()) first = std::move(departure);
  }
  if (verdict.none.has_value()) {
    verdict.kind = Kind::kNotReproducible;
  } else if (verdict.turns.has_value()) {
    verdict.kind = Kind::kDifferent;
  } else if (verdict.space.has_value()) {
    verdict.kind = ran_in_turns && order_may_explain ? Kind::kEqualInTurns : Kind::kDifferent;
  }
  return verdict;
}

}  // namespace detshare::ctl
