// The configuration file from bytes (config_file.h).
#include <algorithm>

#include "policy/config/config_file.h"
#include "policy/config/config_text.h"
#include "tests/fuzzing/check.h"

namespace detshare {
namespace {

bool Same(const Config& a, const Config& b) {
  const ConfigChange change = Compare(a, b);
  return change.live.empty() && change.restart.empty() && !change.access;
}

void CheckProblems(absl::string_view text, const std::vector<ConfigProblem>& problems) {
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
  for (const ConfigProblem& problem : problems) {
    FUZZ_CHECK(!problem.text.empty());
    // It goes to a terminal, and is one line there.
    FUZZ_CHECK(IsPlain(problem.text));
    FUZZ_CHECK(problem.line >= 0 && problem.line <= lines);
    FUZZ_CHECK(problem.column >= 0);
  }
  const std::string shown = ProblemText("f", problems);
  FUZZ_CHECK(std::count(shown.begin(), shown.end(), '\n') ==
             static_cast<std::ptrdiff_t>(problems.size()));
}

}  // namespace
}  // namespace detshare

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace detshare;  // NOLINT
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const ParsedConfig parsed = ParseConfig(text);
  CheckProblems(text, parsed.problems);
  if (!parsed.problems.empty()) return 0;
  const std::string printed = ConfigText(parsed.config);
  const ParsedConfig again = ParseConfig(printed);
  FUZZ_CHECK(again.problems.empty());
  FUZZ_CHECK(Same(again.config, parsed.config));
  FUZZ_CHECK(ConfigText(again.config) == printed);
  return 0;
}
