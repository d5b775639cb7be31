// detshare-device-plugin offers shares of the daemon's GPUs to Kubernetes.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/command_line.h"
#include "tools/containers/injection.h"
#include "tools/kubernetes/daemon_link.h"
#include "tools/kubernetes/kubelet_link.h"
#include "tools/kubernetes/notice.h"
#include "tools/kubernetes/pod_owners.h"
#include "tools/kubernetes/share_service.h"
#include "tools/kubernetes/shares.h"

namespace detshare::kubernetes {
namespace {

struct Flags {
  std::vector<std::string> resources;
  std::string domain = "detshare.io";
  std::string socket = "/run/detshare/detshared.sock";
  std::string libraries = "/usr/lib/x86_64-linux-gnu/detshare";
  std::string kubelet = "/var/lib/kubelet/device-plugins";
  std::string pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  std::string cdi = "/var/run/cdi";
  std::string inject = "mounts";
  int poll_ms = 1000;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option(
         "--resource", flags.resources,
         "A resource to offer; may be repeated. Its name, and behind commas any of shares=N, "
         "class=latency or batch, weight=W, exclusive=on or off, memory=SIZE, pinned-memory=SIZE, "
         "slo-latency=D, "
         "slo-ttft=D, slo-tpot=D "
         "[gpu-share,shares=8]")
      ->type_name("RESOURCE")
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        return std::string(ParseResource(text).status().message());
      });
  app.add_option("--domain", flags.domain, "What the resources' names begin with [detshare.io]")
      ->type_name("DOMAIN");
  app.add_option("--socket", flags.socket, "The daemon's socket [/run/detshare/detshared.sock]")
      ->envname("DETSHARE_SOCKET")
      ->type_name("PATH");
  app.add_option("--library-dir", flags.libraries,
                 "Where the host has the libraries for containers "
                 "[/usr/lib/x86_64-linux-gnu/detshare]")
      ->type_name("PATH");
  app.add_option("--kubelet-dir", flags.kubelet,
                 "Kubelet's directory for plugins [/var/lib/kubelet/device-plugins]")
      ->type_name("PATH");
  app.add_option("--pod-resources", flags.pod_resources,
                 "Kubelet's socket that says which pods have the shares; \"\": do not ask "
                 "[/var/lib/kubelet/pod-resources/kubelet.sock]")
      ->type_name("PATH");
  app.add_option("--cdi-dir", flags.cdi,
                 "Where to write the CDI specification; \"\": nowhere [/var/run/cdi]")
      ->type_name("PATH");
  app.add_option("--inject", flags.inject,
                 "How containers get libraries and socket: cdi needs a kubelet and a runtime that "
                 "know CDI [mounts]")
      ->check(CLI::IsMember({"mounts", "cdi"}));
  app.add_option("--poll-ms", flags.poll_ms, "How often to ask the daemon how it is [1000]")
      ->type_name("N")
      ->check(CLI::Range(10, 60000));
}

int Fail(const std::string& why) {
  std::fprintf(stderr, "detshare-device-plugin: %s\n", why.c_str());
  return 1;
}

int Serve(Flags& flags) {
  if (flags.resources.empty()) flags.resources.push_back("gpu-share");
  std::vector<Resource> resources;
  std::set<std::string> names;
  for (const std::string& text : flags.resources) {
    absl::StatusOr<Resource> resource = ParseResource(text);
    if (!resource.ok()) return Fail(std::string(resource.status().message()));
    if (!names.insert(resource->name).second)
      return Fail("resource " + resource->name + " is there twice");
    resources.push_back(*std::move(resource));
  }
  const size_t slash = flags.socket.rfind('/');
  if (flags.socket.empty() || flags.socket.front() != '/' || flags.libraries.front() != '/')
    return Fail("the socket and the libraries are absolute paths on the host");

  // Blocked before any thread starts, so that all threads inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);

  ShareService::Options options;
  options.inject =
      flags.inject == "cdi" ? ShareService::Inject::kCdi : ShareService::Inject::kMounts;
  options.run_directory = flags.socket.substr(0, slash);
  options.common = containers::CommonInjection(flags.libraries);
  DaemonLink daemon(flags.socket);
  std::vector<std::unique_ptr<ShareService>> services;
  std::vector<ShareService*> borrowed;
  for (const Resource& resource : resources) {
    services.push_back(std::make_unique<ShareService>(resource, options, daemon));
    borrowed.push_back(services.back().get());
  }
  KubeletLink kubelet(flags.kubelet, flags.domain, borrowed);

  PodOwners owners(flags.pod_resources, flags.domain, resources, daemon);

  Notice of_daemon, of_kubelet, of_cdi, of_pods;
  std::vector<Gpu> gpus;
  for (;;) {
    const absl::StatusOr<std::vector<Gpu>> now = daemon.Gpus();
    if (now.ok()) {
      gpus = *now;
      of_daemon.Say("the daemon is there");
    } else {
      // The GPUs are still known, but programs cannot use them.
      for (Gpu& gpu : gpus) gpu.healthy = false;
      of_daemon.Say("no daemon at " + flags.socket + ": " + std::string(now.status().message()));
    }
    std::vector<std::string> endpoints;
    for (const ShareService* service : borrowed) {
      for (const Share& share : SharesOf(service->resource(), gpus))
        endpoints.push_back(EndpointName(service->resource(), share.id));
    }
    // Written before kubelet learns of the shares, because it gives them to containers at once.
    if (!flags.cdi.empty() && !endpoints.empty()) {
      const absl::Status written = containers::WriteCdiSpec(
          flags.cdi + "/detshare.json", containers::CdiSpec(containers::kCdiShares, options.common,
                                                            options.run_directory, endpoints));
      of_cdi.Say(std::string(written.message()));
    }
    for (ShareService* service : borrowed) service->SetGpus(gpus);
    of_kubelet.Say(std::string(kubelet.Tend().message()));
    if (!flags.pod_resources.empty() && now.ok()) {
      const absl::Status known = owners.Tend();
      if (known.ok()) {
        of_pods.Say("");
      } else if (absl::IsNotFound(known)) {
        of_pods.Say(absl::StrCat(std::string(known.message()),
                                 ": tenants do not show their pods until there is one"));
      } else {
        of_pods.Say(std::string(known.message()));
      }
    }
    pollfd fds[2] = {{signal_fd, POLLIN, 0}, {kubelet.events_fd(), POLLIN, 0}};
    if (poll(fds, 2, flags.poll_ms) > 0 && fds[0].revents != 0) return 0;
  }
}

}  // namespace
}  // namespace detshare::kubernetes

int main(int argc, char** argv) {
  detshare::kubernetes::Flags flags;
  CLI::App app("Offers shares of a host's GPUs to Kubernetes.", "detshare-device-plugin");
  detshare::kubernetes::AddFlags(app, flags);
  if (const std::optional<int> code =
          detshare::ParseCommandLine(app, {argv + 1, argv + argc}, /*usage_code=*/2)) {
    return *code;
  }
  return detshare::kubernetes::Serve(flags);
}
