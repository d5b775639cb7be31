// detshare-dra-driver offers the daemon's GPUs to claims of Kubernetes (Dynamic Resource Allocation).
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/command_line.h"
#include "tools/containers/injection.h"
#include "tools/kubernetes/daemon_link.h"
#include "tools/kubernetes/dra/api_server.h"
#include "tools/kubernetes/dra/claim_service.h"
#include "tools/kubernetes/dra/claim_store.h"
#include "tools/kubernetes/dra/health_service.h"
#include "tools/kubernetes/dra/registration.h"
#include "tools/kubernetes/dra/slice_publisher.h"
#include "tools/kubernetes/notice.h"
#include "tools/kubernetes/served_socket.h"

namespace detshare::kubernetes {
namespace {

// Kubelet takes health as unknown after half a minute.
constexpr int64_t kHealthSeconds = 10;
constexpr int kMaxPlaces = 60;  // the daemon has at most 512 endpoints

struct Flags {
  std::string node;
  std::string socket = "/run/detshare/detshared.sock";
  std::string libraries = "/usr/lib/x86_64-linux-gnu/detshare";
  std::string kubelet = "/var/lib/kubelet";
  std::string cdi = "/var/run/cdi";
  std::string api_server, token_file, ca_file;
  int places = 16;
  int poll_ms = 1000;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--node-name", flags.node, "The node's name in the cluster")
      ->envname("NODE_NAME")
      ->type_name("NAME");
  app.add_option("--places", flags.places,
                 "How many claims may have a part of one GPU, 1 to 60 [16]")
      ->type_name("N")
      ->check(CLI::Range(1, kMaxPlaces));
  app.add_option("--socket", flags.socket, "The daemon's socket [/run/detshare/detshared.sock]")
      ->envname("DETSHARE_SOCKET")
      ->type_name("PATH");
  app.add_option("--library-dir", flags.libraries,
                 "Where the host has the libraries for containers "
                 "[/usr/lib/x86_64-linux-gnu/detshare]")
      ->type_name("PATH");
  app.add_option("--kubelet-dir", flags.kubelet, "Kubelet's directory [/var/lib/kubelet]")
      ->type_name("PATH");
  app.add_option("--cdi-dir", flags.cdi, "Where to write the CDI specification [/var/run/cdi]")
      ->type_name("PATH");
  app.add_option("--api-server", flags.api_server,
                 "The API server, https://HOST:PORT or http://HOST:PORT [that of the pod]")
      ->type_name("URL");
  app.add_option("--token-file", flags.token_file,
                 "The file with the token for the API server [that of the service account]")
      ->type_name("PATH");
  app.add_option("--ca-file", flags.ca_file,
                 "The file with the certificate authority of the API server [that of the service "
                 "account]")
      ->type_name("PATH");
  app.add_option("--poll-ms", flags.poll_ms, "How often to ask the daemon how it is [1000]")
      ->type_name("N")
      ->check(CLI::Range(10, 60000));
}

int Fail(const std::string& why) {
  std::fprintf(stderr, "detshare-dra-driver: %s\n", why.c_str());
  return 1;
}

absl::StatusOr<ApiAccess> AccessOf(const Flags& flags) {
  absl::StatusOr<ApiAccess> access =
      flags.api_server.empty() ? AccessOfPod() : ParseServer(flags.api_server);
  if (!access.ok()) return access;
  if (!flags.token_file.empty()) access->token_file = flags.token_file;
  if (!flags.ca_file.empty()) access->ca_file = flags.ca_file;
  if (access->scheme == "https" && access->ca_file.empty())
    return absl::InvalidArgumentError("https needs --ca-file");
  return access;
}

// What the daemon says about its GPUs now. A GPU that is lost may no longer tell what it is, and
// without the daemon nobody tells.
std::vector<Gpu> GpusNow(const absl::StatusOr<std::vector<Gpu>>& now,
                         const std::vector<Gpu>& before) {
  std::vector<Gpu> gpus = now.ok() ? *now : before;
  for (Gpu& gpu : gpus) {
    if (!now.ok()) {
      gpu.healthy = false;
      gpu.problem = "detshared does not reply";
    }
    const auto known = std::find_if(before.begin(), before.end(),
                                    [&](const Gpu& one) { return one.uuid == gpu.uuid; });
    if (known == before.end() || gpu.healthy) continue;
    if (gpu.memory == 0) gpu.memory = known->memory;
    if (gpu.sm_count == 0) gpu.sm_count = known->sm_count;
  }
  return gpus;
}

int Serve(const Flags& flags) {
  if (flags.node.empty()) return Fail("name the node with --node-name, or NODE_NAME");
  const size_t slash = flags.socket.rfind('/');
  if (flags.socket.empty() || flags.socket.front() != '/' || flags.libraries.empty() ||
      flags.libraries.front() != '/' || flags.kubelet.empty() || flags.kubelet.front() != '/')
    return Fail("the socket, the libraries and kubelet's directory are absolute paths on the host");
  const absl::StatusOr<ApiAccess> access = AccessOf(flags);
  if (!access.ok()) return Fail(std::string(access.status().message()));

  // Blocked before any thread starts, so that all threads inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);

  const ApiServer api(*access);
  DaemonLink daemon(flags.socket);
  ClaimStore::Options options;
  options.pool = flags.node;
  options.directory = flags.kubelet + "/plugins/" + kDriver;
  options.cdi_file = flags.cdi + "/detshare-claims.json";
  options.run_directory = flags.socket.substr(0, slash);
  options.common = containers::CommonInjection(flags.libraries);
  absl::StatusOr<std::unique_ptr<ClaimStore>> claims =
      ClaimStore::Create(api, daemon, std::move(options));
  if (!claims.ok()) return Fail(std::string(claims.status().message()));
  SliceOptions slice;
  slice.node = flags.node;
  slice.places = flags.places;
  SlicePublisher publisher(api, slice);

  const std::string endpoint = flags.kubelet + "/plugins/" + kDriver + "/dra.sock";
  ClaimService<versions::V1> v1(flags.node, **claims);
  ClaimService<versions::V1Beta1> v1beta1(flags.node, **claims);
  HealthService health(flags.node);
  RegistrationService registration(endpoint);
  ServedSocket driver_socket(endpoint, {&v1, &v1beta1, &health});
  ServedSocket registration_socket(flags.kubelet + "/plugins_registry/" + kDriver + "-reg.sock",
                                   {&registration});

  Notice of_daemon, of_kubelet;
  std::vector<Gpu> gpus, told;
  int64_t told_at = 0;
  bool known = false;
  for (;;) {
    const absl::StatusOr<std::vector<Gpu>> now = daemon.Gpus();
    of_daemon.Say(now.ok() ? "the daemon is there"
                           : "no daemon at " + flags.socket + ": " +
                                 std::string(now.status().message()));
    gpus = GpusNow(now, gpus);
    known = known || now.ok();
    if (now.ok()) (*claims)->Tend(gpus);
    if (known) publisher.Publish(gpus, now.ok());
    const int64_t seconds = std::time(nullptr);
    if (gpus != told || seconds - told_at >= kHealthSeconds) {
      health.SetGpus(gpus, seconds);
      told = gpus;
      told_at = seconds;
    }
    // Kubelet calls the driver as soon as it has found the registration.
    absl::Status served = driver_socket.Tend().status();
    if (served.ok()) served = registration_socket.Tend().status();
    of_kubelet.Say(std::string(served.message()));
    pollfd fds[1] = {{signal_fd, POLLIN, 0}};
    if (poll(fds, 1, flags.poll_ms) > 0) return 0;
  }
}

}  // namespace
}  // namespace detshare::kubernetes

int main(int argc, char** argv) {
  detshare::kubernetes::Flags flags;
  CLI::App app("Offers a host's GPUs to claims of Kubernetes.", "detshare-dra-driver");
  detshare::kubernetes::AddFlags(app, flags);
  if (const std::optional<int> code =
          detshare::ParseCommandLine(app, {argv + 1, argv + argc}, /*usage_code=*/2)) {
    return *code;
  }
  return detshare::kubernetes::Serve(flags);
}
