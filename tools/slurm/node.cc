#include "tools/slurm/node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/slurm/options.h"
#include "tools/slurm/view.h"

namespace detshare::slurm {

Node::Node(Arguments arguments, std::string name, Log log)
    : arguments_(std::move(arguments)),
      name_(std::move(name)),
      log_(std::move(log)),
      records_(arguments_.state) {}

void Node::Begin(uint32_t job, const std::string& user, const std::optional<std::string>& text) {
  CloseLeftOvers();
  records_.ForgetRefusal(job);
  if (!text.has_value()) return;
  const absl::StatusOr<JobOptions> options = ParseJobOptions(*text);
  const absl::Status opened =
      options.ok() ? OpenEndpoint(arguments_, job, user, *options) : options.status();
  if (opened.ok()) return;
  log_(absl::StrCat("job ", job, " gets no endpoint: ", opened.message()));
  if (absl::Status noted = records_.NoteRefusal(job, opened.message()); !noted.ok())
    log_(std::string(noted.message()));
}

absl::StatusOr<bool> Node::Show(uint32_t job, bool asked) const {
  if (const std::optional<std::string> reason = records_.Refusal(job)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job, " gets no GPU from DetShare on ", name_, ": ", *reason));
  }
  if (!EndpointExists(arguments_, job)) {
    if (!asked) return false;
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job, " has no endpoint of DetShare on ", name_,
                     ": give --detshare to the job (sbatch, salloc), not to a step of it"));
  }
  const std::string& socket = arguments_.socket;
  absl::Status shown =
      ShowEndpoint(EndpointDirectory(arguments_, job), socket.substr(0, socket.rfind('/')));
  if (!shown.ok()) return shown;
  return true;
}

void Node::End(uint32_t job) {
  CloseLeftOvers();
  const bool refused = records_.Refusal(job).has_value();
  // A refused job has an endpoint, too, if the daemon opened it after detsharectl gave up.
  if (refused || EndpointExists(arguments_, job)) {
    if (!Close(job)) {
      if (absl::Status noted = records_.NoteUnclosed(job); !noted.ok())
        log_(std::string(noted.message()));
    }
    records_.ForgetRefusal(job);
  }
}

void Node::CloseLeftOvers() {
  for (const uint32_t job : records_.Unclosed()) {
    bool replies = true;
    records_.Close(job, [&] { return replies = Close(job); });
    if (!replies) return;
  }
}

bool Node::Close(uint32_t job) {
  const absl::Status closed = CloseEndpoint(arguments_, job);
  if (absl::IsUnavailable(closed)) {
    log_(absl::StrCat("the endpoint of job ", job, " is closed later: ", closed.message()));
    return false;
  }
  if (!closed.ok() && EndpointExists(arguments_, job)) log_(std::string(closed.message()));
  return true;
}

}  // namespace detshare::slurm
