// The files of server/web/dashboard/, as they were when the daemon was built.
#pragma once

#include <span>
#include <string_view>

namespace detshare {

struct DashboardFile {
  std::string_view path;  // "/" for index.html
  std::string_view type;
  std::string_view content;
};

// Returns all files. They stay valid as long as the process.
std::span<const DashboardFile> DashboardFiles();

}  // namespace detshare
