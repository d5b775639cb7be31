#include "server/telemetry/process_ids.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace detshare {
namespace {

// Returns the process's ids from the daemon's pid namespace inwards; empty if the process is gone.
std::vector<uint32_t> IdsByDepth(pid_t process) {
  std::ifstream status(absl::StrCat("/proc/", process, "/status"));
  std::vector<uint32_t> ids;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("NSpid:", 0) != 0) continue;
    std::istringstream fields(line.substr(6));
    for (uint32_t id; fields >> id;) ids.push_back(id);
    break;
  }
  return ids;
}

}  // namespace

ProcessIds::ProcessIds(pid_t viewer, uint64_t viewer_namespace)
    : depth_(static_cast<int>(IdsByDepth(viewer).size()) - 1), namespace_(viewer_namespace) {}

uint32_t ProcessIds::OfViewer(pid_t process, uint64_t process_namespace) const {
  const std::vector<uint32_t> ids = IdsByDepth(process);
  if (depth_ < 0 || ids.empty()) return 0;
  if (depth_ == 0) return ids.front();
  return namespace_ != 0 && process_namespace == namespace_ ? ids.back() : 0;
}

}  // namespace detshare
