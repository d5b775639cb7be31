// The mounts and environment of a container: its tenant endpoint, at the place where libcuda.so.1
// looks for the daemon, and DetShare's libraries, in directories that the dynamic linker searches
// by default. The container gets no device, no driver, no hook and no LD_LIBRARY_PATH, which would
// replace the image's own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace detshare::kubernetes {

struct BindMount {
  std::string host, container;
  bool read_only = false;
};

// The part that all containers have in common.
struct Injection {
  std::vector<BindMount> mounts;
  std::map<std::string, std::string> environment;
};

// Mounts the libraries of `library_directory` for every image with glibc. Its environment keeps
// NVIDIA's runtime hook from adding GPUs.
Injection CommonInjection(const std::string& library_directory);
// The mount of the tenant endpoint `name`. The daemon's socket is in `run_directory`.
BindMount EndpointMount(const std::string& run_directory, const std::string& name);

inline constexpr char kCdiKind[] = "detshare.io/share";

// A CDI specification with one device for each tenant endpoint. Readers of CDI 0.5 and newer
// understand it.
std::string CdiSpec(const Injection& common, const std::string& run_directory,
                    const std::vector<std::string>& endpoints);
// Writes `text` to `detshare.json` in `directory`, and makes the directory when it is missing. The
// file is replaced at once, so runtimes never read a part of it. Does nothing when the file already
// has this text.
absl::Status WriteCdiSpec(const std::string& directory, const std::string& text);

}  // namespace detshare::kubernetes
