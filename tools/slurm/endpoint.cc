#include "tools/slurm/endpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "policy/config/config.h"
#include "tools/slurm/command.h"

namespace detshare::slurm {
namespace {

// detsharectl itself gives up after ten seconds.
constexpr std::chrono::seconds kCallTimeout(30);

constexpr int kExitNoDaemon = 3;  // of detsharectl: no daemon replies
constexpr size_t kMaxUser = 40;   // with prefix and job, less than a tenant's name may have

// The program's message as one line, without its own name in front.
std::string Message(const CommandResult& result) {
  std::string text(absl::StripAsciiWhitespace(result.errors));
  text = absl::StrReplaceAll(text, {{"detsharectl: ", ""}, {"\n", " "}});
  return text.empty() ? absl::StrCat("exit status ", result.exit_code) : text;
}

absl::StatusOr<CommandResult> CallControl(const Arguments& arguments,
                                          std::vector<std::string> words) {
  words.insert(words.begin(), {arguments.detsharectl, "--socket", arguments.socket});
  absl::StatusOr<CommandResult> result = RunCommand(words, kCallTimeout);
  if (!result.ok()) return absl::UnavailableError(result.status().message());
  if (result->exit_code == kExitNoDaemon) return absl::UnavailableError(Message(*result));
  if (result->exit_code != 0) return absl::FailedPreconditionError(Message(*result));
  return result;
}

}  // namespace

std::string EndpointName(uint32_t job) { return absl::StrCat("slurm-", job); }

std::string TenantName(absl::string_view user, uint32_t job) {
  std::string name(user.substr(0, kMaxUser));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !IsTenantName(absl::string_view(&c, 1)); },
      '_');
  return absl::StrCat("slurm-", name, "-", job);
}

std::string EndpointDirectory(const Arguments& arguments, uint32_t job) {
  const std::string runtime = arguments.socket.substr(0, arguments.socket.rfind('/'));
  return absl::StrCat(runtime, "/endpoints/", EndpointName(job));
}

bool EndpointExists(const Arguments& arguments, uint32_t job) {
  struct stat status {};
  return stat(EndpointDirectory(arguments, job).c_str(), &status) == 0;
}

absl::Status OpenEndpoint(const Arguments& arguments, uint32_t job, absl::string_view user,
                          const JobOptions& options) {
  std::vector<std::string> words = {"endpoint", "open", EndpointName(job), "--tenant",
                                    TenantName(user, job)};
  for (const auto& [name, value] : options.settings)
    words.push_back(absl::StrCat("--", name, "=", value));
  return CallControl(arguments, std::move(words)).status();
}

absl::Status CloseEndpoint(const Arguments& arguments, uint32_t job) {
  const absl::Status closed =
      CallControl(arguments, {"endpoint", "close", EndpointName(job)}).status();
  if (closed.ok() || absl::IsUnavailable(closed)) return closed;
  return absl::NotFoundError(closed.message());
}

}  // namespace detshare::slurm
