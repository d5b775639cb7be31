#include "tools/slurm/accounting.h"

#include <chrono>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/slurm/command.h"

namespace detshare::slurm {
namespace {

constexpr std::chrono::seconds kAccountingTimeout(15);
constexpr char kSeparator[] = "; ";
// How often a comment is written that another node of the job overwrites at the same time.
constexpr int kAttempts = 5;

// In lower case, as sacctmgr turns all comments.
std::string PrefixOf(absl::string_view node) {
  return absl::StrCat("detshare ", absl::AsciiStrToLower(node), ": ");
}

absl::StatusOr<std::string> Run(const std::vector<std::string>& words) {
  absl::StatusOr<CommandResult> result = RunCommand(words, kAccountingTimeout);
  if (!result.ok()) return absl::UnavailableError(result.status().message());
  if (result->exit_code == 0) return std::string(absl::StripAsciiWhitespace(result->output));
  const std::string& said = result->errors.empty() ? result->output : result->errors;
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::StripAsciiWhitespace(said), '\n');
  return absl::UnavailableError(absl::StrCat(words[0], ": ", lines.front()));
}

}  // namespace

std::string UseText(absl::string_view node, const EndpointUse& use) {
  return absl::StrFormat("%sgpu_seconds=%.1f peak_mib=%.1f sessions=%d", PrefixOf(node),
                         use.gpu_seconds, static_cast<double>(use.peak_memory) / (1 << 20),
                         use.sessions);
}

std::string AddUse(absl::string_view comment, absl::string_view node, const EndpointUse& use) {
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(comment, kSeparator)) {
    if (!part.empty() && !absl::StartsWith(part, PrefixOf(node))) parts.emplace_back(part);
  }
  parts.push_back(UseText(node, use));
  return absl::StrJoin(parts, kSeparator);
}

absl::Status RecordUse(const Arguments& arguments, uint32_t job, absl::string_view node,
                       const EndpointUse& use) {
  const std::vector<std::string> ask = {
      arguments.slurm + "/sacct",   "--allocations",        "--noheader", "--parsable2",
      absl::StrCat("--jobs=", job), "--format=AdminComment"};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const absl::StatusOr<std::string> comment = Run(ask);
    if (!comment.ok()) return comment.status();
    const std::string wanted = absl::AsciiStrToLower(AddUse(*comment, node, use));
    if (absl::AsciiStrToLower(*comment) == wanted) return absl::OkStatus();
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50 << attempt));
    const absl::Status written =
        Run({arguments.slurm + "/sacctmgr", "--immediate", "modify", "job",
             absl::StrCat("JobID=", job), "set", absl::StrCat("AdminComment=", wanted)})
            .status();
    if (!written.ok()) return written;
  }
  return absl::UnavailableError("the job's AdminComment is overwritten again and again");
}

}  // namespace detshare::slurm
