#include "server/engines/left_directories.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "server/base/remove_tree.h"
#include "server/engines/engine_launch.h"
#include "server/engines/engine_process.h"

namespace detshare {

LeftDirectories::LeftDirectories(std::string runtime_directory,
                                 std::function<bool(const std::string& name)> known)
    : runtime_directory_(std::move(runtime_directory)), known_(std::move(known)) {}

void LeftDirectories::Remove() {
  std::error_code error;
  std::filesystem::directory_iterator entry(EnginesDirectory(runtime_directory_), error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    // The supervisor's own files, such as the list. They stay until others replace them: this
    // supervisor may be killed before that, or find no space. No engine's directory has such a name.
    if (name.front() == '.' || known_(name)) continue;
    if (EngineUses(entry->path().string())) {
      used_.insert(name);
    } else {
      RemoveTree(entry->path().string());
    }
  }
  if (unknown_engines()) timer_.Start(period_);
}

void LeftDirectories::RemoveMore() {
  timer_.Clear();
  std::erase_if(used_, [&](const std::string& name) {
    // A new engine may have got the directory of one that has ended.
    if (known_(name)) return true;
    const std::string directory = EngineDirectory(runtime_directory_, name);
    if (EngineUses(directory)) return false;
    RemoveTree(directory);
    return true;
  });
  if (!unknown_engines()) return;
  // Each look disturbs the engine a little: it takes the connection for that of a supervisor.
  period_ = std::min(2 * period_, kLastPeriod);
  timer_.Start(period_);
}

}  // namespace detshare
