#include "tools/slurm/node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/slurm/accounting.h"
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
  const absl::Status opened = Open(job, user, *text);
  if (opened.ok()) return;
  log_(absl::StrCat("job ", job, " gets no endpoint: ", opened.message()));
  if (absl::Status noted = records_.NoteRefusal(job, opened.message()); !noted.ok())
    log_(std::string(noted.message()));
}

absl::Status Node::Open(uint32_t job, const std::string& user, const std::string& text) const {
  const absl::StatusOr<JobOptions> options = ParseJobOptions(text);
  return options.ok() ? OpenEndpoint(arguments_, job, user, *options) : options.status();
}

absl::StatusOr<bool> Node::Show(uint32_t job, const std::string& user,
                                const std::optional<std::string>& text) const {
  const auto refused = [&](absl::string_view reason) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job, " gets no GPU from DetShare on ", name_, ": ", reason));
  };
  if (const std::optional<std::string> reason = records_.Refusal(job)) return refused(*reason);
  if (!EndpointExists(arguments_, job)) {
    if (!text.has_value()) return false;
    // The tasks of a step begin at the same time, and a second endpoint would replace the first one.
    absl::Status opened;
    absl::Status locked = records_.Exclusively([&] {
      if (!EndpointExists(arguments_, job)) opened = Open(job, user, *text);
    });
    if (!locked.ok()) return refused(locked.message());
    if (!opened.ok()) return refused(opened.message());
  }
  const std::string& socket = arguments_.socket;
  absl::Status shown =
      ShowEndpoint(EndpointDirectory(arguments_, job), socket.substr(0, socket.rfind('/')));
  if (!shown.ok()) return refused(shown.message());
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
  if (records_.Unclosed().empty()) return;
  const absl::Status locked = records_.Exclusively([&] {
    for (const uint32_t job : records_.Unclosed()) {
      if (!Close(job)) return;
      records_.ForgetUnclosed(job);
    }
  });
  if (!locked.ok()) log_(std::string(locked.message()));
}

bool Node::Close(uint32_t job) {
  const absl::StatusOr<EndpointUse> use = CloseEndpoint(arguments_, job);
  if (absl::IsUnavailable(use.status())) {
    log_(absl::StrCat("the endpoint of job ", job, " is closed later: ", use.status().message()));
    return false;
  }
  if (!use.ok()) {
    if (EndpointExists(arguments_, job)) log_(std::string(use.status().message()));
    return true;
  }
  log_(absl::StrCat("job ", job, " has ended: ", UseText(name_, *use)));
  if (absl::Status recorded = RecordUse(arguments_, job, name_, *use); !recorded.ok())
    log_(absl::StrCat("its figures are not in the accounting: ", recorded.message()));
  return true;
}

}  // namespace detshare::slurm
