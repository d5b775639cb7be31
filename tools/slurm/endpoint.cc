#include "tools/slurm/endpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "policy/config/config.h"
#include "tools/slurm/command.h"

namespace detshare::slurm {
namespace {

// detsharectl itself gives up after ten seconds.
constexpr std::chrono::seconds kCallTimeout(30);

constexpr int kExitNoDaemon = 3;  // of detsharectl: no daemon replies
constexpr size_t kMaxUser = 40;   // with prefix and job, less than a tenant's name may have

// The first line of the program's message, without its own name in front. The others are hints for
// operators who call it.
std::string Message(const CommandResult& result) {
  absl::string_view text = result.errors;
  text = text.substr(0, text.find('\n'));
  absl::ConsumePrefix(&text, "detsharectl: ");
  return text.empty() ? absl::StrCat("exit status ", result.exit_code) : std::string(text);
}

// The user's name as the owner of an endpoint may have it (proto/owner.h).
std::string Printable(absl::string_view user) {
  constexpr size_t kMax = 128;
  std::string name(user.substr(0, kMax));
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return !absl::ascii_isgraph(static_cast<unsigned char>(c)) || c == '"' || c == '\'' ||
               c == '`';
      },
      '_');
  return name;
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
  words.push_back(absl::StrCat("--job=", job));
  if (const std::string known = Printable(user); !known.empty())
    words.push_back(absl::StrCat("--user=", known));
  for (const auto& [name, value] : options.settings)
    words.push_back(absl::StrCat("--", name, "=", value));
  return CallControl(arguments, std::move(words)).status();
}

absl::StatusOr<EndpointUse> CloseEndpoint(const Arguments& arguments, uint32_t job) {
  const absl::StatusOr<CommandResult> result =
      CallControl(arguments, {"--json", "endpoint", "close", EndpointName(job)});
  if (absl::IsUnavailable(result.status())) return result.status();
  if (!result.ok()) return absl::NotFoundError(result.status().message());
  return ParseUse(result->output);
}

EndpointUse ParseUse(const std::string& json) {
  const auto figures = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto take = [&](const char* name, auto* to) {
    if (!figures.is_object()) return;
    const auto found = figures.find(name);
    if (found != figures.end() && found->is_number()) found->get_to(*to);
  };
  EndpointUse use;
  take("sessions", &use.sessions);
  take("gpu_seconds", &use.gpu_seconds);
  take("peak_memory", &use.peak_memory);
  return use;
}

}  // namespace detshare::slurm
