#include "tools/kubernetes/kubelet_link.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

namespace detshare::kubernetes {
namespace {

constexpr char kApiVersion[] = "v1beta1";
constexpr char kKubeletSocket[] = "kubelet.sock";
constexpr std::chrono::seconds kRegisterTimeout(10);

}  // namespace

KubeletLink::KubeletLink(std::string directory, std::string domain,
                         std::vector<ShareService*> services)
    : directory_(std::move(directory)),
      domain_(std::move(domain)),
      inotify_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  for (ShareService* service : services) {
    const std::string endpoint = absl::StrCat("detshare-", service->resource().name, ".sock");
    plugins_.push_back(
        {service, endpoint, ServedSocket(absl::StrCat(directory_, "/", endpoint), {service})});
  }
  Watch();
}

KubeletLink::~KubeletLink() { close(inotify_); }

bool KubeletLink::Watch() {
  return inotify_add_watch(inotify_, directory_.c_str(),
                           IN_CREATE | IN_DELETE | IN_MOVE | IN_ONLYDIR) >= 0;
}

void KubeletLink::DrainEvents() {
  char buffer[4096];
  while (read(inotify_, buffer, sizeof(buffer)) > 0) {
  }
}

absl::Status KubeletLink::Tend() {
  // Drained before the check, so a later change makes another event.
  DrainEvents();
  // Kubelet makes the directory, perhaps after the plugin has started. gRPC would print its own errors.
  if (!Watch()) {
    kubelet_ = {};
    return absl::NotFoundError(absl::StrCat("there is no ", directory_, ": waiting for kubelet"));
  }
  const SocketFile kubelet = LookAtSocket(absl::StrCat(directory_, "/", kKubeletSocket));
  bool all = kubelet.there && kubelet == kubelet_;
  for (Plugin& plugin : plugins_) {
    const absl::StatusOr<bool> begun = plugin.socket.Tend();
    if (!begun.ok()) return begun.status();
    if (*begun) all = false;
  }
  if (all) return absl::OkStatus();
  kubelet_ = {};
  if (!kubelet.there)
    return absl::NotFoundError(
        absl::StrCat("there is no ", directory_, "/", kKubeletSocket, ": waiting for kubelet"));
  for (const Plugin& plugin : plugins_) {
    if (absl::Status registered = Register(plugin); !registered.ok()) return registered;
  }
  kubelet_ = kubelet;
  return absl::OkStatus();
}

absl::Status KubeletLink::Register(const Plugin& plugin) {
  // A new connection for each call, so that none leads to a kubelet that has ended.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto stub = v1beta1::Registration::NewStub(
      grpc::CreateCustomChannel(absl::StrCat("unix:", directory_, "/", kKubeletSocket),
                                grpc::InsecureChannelCredentials(), arguments));
  v1beta1::RegisterRequest request;
  request.set_version(kApiVersion);
  request.set_endpoint(plugin.endpoint);
  request.set_resource_name(absl::StrCat(domain_, "/", plugin.service->resource().name));
  *request.mutable_options() = ShareService::PluginOptions();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kRegisterTimeout);
  v1beta1::Empty reply;
  const grpc::Status status = stub->Register(&context, request, &reply);
  if (status.ok()) {
    std::fprintf(stderr, "kubelet knows %s\n", request.resource_name().c_str());
    return absl::OkStatus();
  }
  return {static_cast<absl::StatusCode>(status.error_code()),
          absl::StrCat("kubelet does not take ", request.resource_name(), ": ",
                       status.error_message())};
}

}  // namespace detshare::kubernetes
