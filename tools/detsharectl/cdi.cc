#include "tools/detsharectl/cdi.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/containers/injection.h"
#include "tools/detshare/launch.h"
#include "tools/detsharectl/daemon.h"
#include "tools/detsharectl/endpoint.h"
#include "tools/text/table.h"

namespace detshare::ctl {
namespace {

constexpr char kFile[] = "/detshare.json";
// Time between two looks at the daemon's endpoints.
constexpr timespec kInterval{1, 0};

int Fail(const std::string& message) {
  std::fprintf(stderr, "detsharectl: %s\n", message.c_str());
  return kExitRefused;
}

absl::StatusOr<std::string> Libraries(const CdiOptions& options) {
  if (!options.libraries.empty()) {
    for (const char* library : {"/libcuda.so.1", "/libnvidia-ml.so.1"}) {
      const std::string path = options.libraries + library;
      std::error_code error;
      if (std::filesystem::exists(path, error)) continue;
      return absl::NotFoundError(
          absl::StrCat("there is no ", path,
                       ": name the directory of DetShare's libraries, or leave --libraries out"));
    }
    return options.libraries;
  }
  const std::string found = tools::FindShim(tools::ShimDirectories(tools::OwnDirectory()));
  if (found.empty()) {
    return absl::NotFoundError(
        "there is no libcuda.so.1 of DetShare: install detshare-client, or name its directory with "
        "--libraries");
  }
  return std::filesystem::absolute(found).lexically_normal().string();
}

std::string SpecOf(const CdiOptions& options, const std::string& libraries,
                   const proto::EndpointList& endpoints) {
  std::vector<std::string> names;
  for (const proto::TenantEndpoint& endpoint : endpoints.endpoints())
    names.push_back(endpoint.name());
  const std::string run_directory =
      std::filesystem::absolute(options.socket).parent_path().string();
  return containers::CdiSpec(containers::kCdiGpus, containers::CommonInjection(libraries),
                             run_directory, names);
}

}  // namespace

int PrintCdi(const CdiOptions& options) {
  const absl::StatusOr<std::string> libraries = Libraries(options);
  if (!libraries.ok()) return Fail(std::string(libraries.status().message()));
  proto::EndpointList endpoints;
  if (const int code = GetEndpoints(options.socket, &endpoints); code != 0) return code;
  if (endpoints.endpoints_size() == 0) {
    return Fail("there are no endpoints: open one with detsharectl endpoint open NAME");
  }
  std::fputs(SpecOf(options, *libraries, endpoints).c_str(), stdout);
  return 0;
}

int WatchCdi(const CdiOptions& options) {
  const absl::StatusOr<std::string> libraries = Libraries(options);
  if (!libraries.ok()) return Fail(std::string(libraries.status().message()));
  // Before gRPC makes threads, so that they do not take the signals.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const std::string path = options.directory + kFile;
  std::string last;
  int before = 0;
  do {
    proto::EndpointList endpoints;
    const int code = GetEndpoints(options.socket, &endpoints, /*quiet=*/before != 0);
    if (code == 0) {
      const bool none = endpoints.endpoints_size() == 0;
      const std::string spec = none ? "" : SpecOf(options, *libraries, endpoints);
      if (none) {
        std::error_code error;
        std::filesystem::remove(path, error);
        if (error) return Fail(absl::StrCat("cannot remove ", path, ": ", error.message()));
      } else if (const absl::Status written = containers::WriteCdiSpec(path, spec); !written.ok()) {
        return Fail(std::string(written.message()));
      }
      if (spec != last || before != 0) {
        std::printf("%s: %s\n", path.c_str(),
                    text::Counted(endpoints.endpoints_size(), "device").c_str());
        std::fflush(stdout);
      }
      last = spec;
    }
    before = code;
  } while (sigtimedwait(&ends, nullptr, &kInterval) < 0);
  return 0;
}

}  // namespace detshare::ctl
