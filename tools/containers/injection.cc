#include "tools/containers/injection.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace detshare::containers {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const BindMount& mount) {
  return {{"hostPath", mount.host},
          {"containerPath", mount.container},
          {"options", {"rbind", mount.read_only ? "ro" : "rw", "nosuid", "nodev"}}};
}

}  // namespace

Injection CommonInjection(const std::string& library_directory) {
  Injection injection;
  // The last directories that Debian's and Red Hat's dynamic linkers search. The container runtime
  // makes a directory that the image lacks.
  for (const char* directory : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64"}) {
    for (const char* library : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
      injection.mounts.push_back({absl::StrCat(library_directory, "/", library),
                                  absl::StrCat(directory, "/", library), true});
    }
  }
  // NVIDIA's images request all GPUs. A runtime with NVIDIA's hook would add them.
  injection.environment["NVIDIA_VISIBLE_DEVICES"] = "void";
  return injection;
}

BindMount EndpointMount(const std::string& run_directory, const std::string& name) {
  return {absl::StrCat(run_directory, "/endpoints/", name), "/run/detshare", false};
}

std::string CdiSpec(const std::string& kind, const Injection& common,
                    const std::string& run_directory, const std::vector<std::string>& endpoints) {
  Json edits = Json::object();
  for (const auto& [name, value] : common.environment)
    edits["env"].push_back(absl::StrCat(name, "=", value));
  for (const BindMount& mount : common.mounts) edits["mounts"].push_back(ToJson(mount));
  // Readers refuse versions newer than their own, so this is the oldest version in which device
  // names may begin with any letter or digit.
  Json spec = {{"cdiVersion", "0.5.0"},
               {"kind", kind},
               {"containerEdits", edits},
               {"devices", Json::array()}};
  for (const std::string& endpoint : endpoints) {
    spec["devices"].push_back(
        {{"name", endpoint},
         {"containerEdits",
          {{"mounts", Json::array({ToJson(EndpointMount(run_directory, endpoint))})}}}});
  }
  return spec.dump(2) + "\n";
}

absl::Status WriteCdiSpec(const std::string& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  // Readers ignore files that do not end with ".json".
  const std::string fresh = path + ".new";
  std::ifstream before(path);
  std::ostringstream there;
  there << before.rdbuf();
  if (before && there.str() == text) return absl::OkStatus();
  std::ofstream stream(fresh, std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream || chmod(fresh.c_str(), 0644) != 0 || rename(fresh.c_str(), path.c_str()) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot write ", path, ": ", std::generic_category().message(errno)));
  }
  return absl::OkStatus();
}

}  // namespace detshare::containers
