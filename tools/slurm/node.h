// What the plugin does for the jobs of this node, without Slurm's interface.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tools/slurm/arguments.h"
#include "tools/slurm/endpoint.h"
#include "tools/slurm/records.h"

namespace detshare::slurm {

class Node {
 public:
  // Takes lines for the log of slurmd.
  using Log = std::function<void(const std::string& line)>;
  // `name` is the node's name in Slurm.
  Node(Arguments arguments, std::string name, Log log);

  // Before a job begins here, as root. `text` is its --detshare; nothing: it has none. Opens the
  // endpoint. If there can be none, the job's tasks learn the reason from Show(): a failing prolog
  // would take the node out of service.
  void Begin(uint32_t job, const std::string& user, const std::optional<std::string>& text);

  // In the process of a task, as root. The process and its children then use the job's endpoint, if
  // it has one. Returns whether it has one. `text` is the --detshare of the job's step; it gives the
  // job an endpoint if it has none: a step may ask for one, and Slurm does not run the prolog of
  // every job that it starts again. FailedPrecondition, with a line for the user, if the job can get
  // none.
  absl::StatusOr<bool> Show(uint32_t job, const std::string& user,
                            const std::optional<std::string>& text) const;

  // After the job has ended here, as root. Closes its endpoint and records what it has used. If no
  // daemon replies, the next Begin() or End() on this node closes it.
  void End(uint32_t job);

  const Arguments& arguments() const { return arguments_; }

 private:
  absl::Status Open(uint32_t job, const std::string& user, const std::string& text) const;
  void CloseLeftOvers();
  // Returns false if no daemon replies.
  bool Close(uint32_t job);

  const Arguments arguments_;
  const std::string name_;
  const Log log_;
  const Records records_;
};

}  // namespace detshare::slurm
