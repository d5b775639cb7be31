#include "server/engines/code_cache.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/errno_text.h"
#include "server/base/logging.h"
#include "server/engines/isolation_group.h"

namespace detshare {
namespace {

constexpr char kVariable[] = "CUDA_CACHE_PATH";
constexpr char kFolderOfEngines[] = "engines";
// A spare engine finds code in its working directory, and changes to its group's folder later: the driver
// opens the path whenever it compiles.
constexpr char kFolderOfSpares[] = "/proc/self/cwd";

std::string FolderOfDaemon() {
  const char* const path = getenv(kVariable);
  return path == nullptr ? "" : path;
}

}  // namespace

std::string CodeCacheFor(const EngineUser& user, const std::string& group) {
  const std::string all = FolderOfDaemon();
  if (user.uid == 0 || all.empty()) return "";
  const std::string engines = absl::StrCat(all, "/", kFolderOfEngines);
  const std::string path = absl::StrCat(engines, "/", DirectoryName(group));
  mkdir(engines.c_str(), 0711);  // may be there
  // Engines may pass through, and read no folder but their own.
  for (const std::string& passed : {all, engines}) {
    if (chmod(passed.c_str(), 0711) != 0)
      LogWarning("engines do not reach ", passed, ": ", ErrnoText(errno));
  }
  if (const absl::Status given = GiveTreeTo(user, path); !given.ok())
    LogWarning("the driver keeps no code for isolation group ", group, ": ",
               std::string(given.message()));
  return path;
}

std::string CodeCacheVariable(const EngineUser& user, const std::string& group) {
  if (user.uid == 0 || FolderOfDaemon().empty()) return "";
  return absl::StrCat(kVariable, "=", group.empty() ? kFolderOfSpares : CodeCacheFor(user, group));
}

}  // namespace detshare
