// The mounts and environment of a container: its tenant endpoint, at the place where libcuda.so.1
// looks for the daemon, and DetShare's libraries, in directories that the dynamic linker searches
// by default. The container gets no device, no driver, no hook and no LD_LIBRARY_PATH, which would
// replace the image's own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace detshare::containers {

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

// The devices that the device plugin gives to pods, and those that people name.
inline constexpr char kCdiShares[] = "detshare.io/share";
inline constexpr char kCdiGpus[] = "detshare.io/gpu";

// A CDI specification (https://github.com/cncf-tags/container-device-interface) with one device of
// this kind for each tenant endpoint. Readers of CDI 0.5 and newer understand it.
std::string CdiSpec(const std::string& kind, const Injection& common,
                    const std::string& run_directory, const std::vector<std::string>& endpoints);
// Writes `text` to the file `path`, whose name ends with ".json", and makes its directory if there is none.
// The file is replaced at once, so runtimes never read a part of it. Does nothing if the file
// already has this text.
absl::Status WriteCdiSpec(const std::string& path, const std::string& text);

}  // namespace detshare::containers
