// The device plugin of one resource: what kubelet asks, and is told.
#pragma once

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tools/kubernetes/daemon_link.h"
#include "tools/kubernetes/device_plugin.grpc.pb.h"
#include "tools/kubernetes/injection.h"
#include "tools/kubernetes/shares.h"

namespace detshare::kubernetes {

// ListAndWatch has a stream that waits for changes without a thread; the other calls are short, or
// wait for the daemon, on gRPC's threads.
class ShareService final : public v1beta1::DevicePlugin::WithCallbackMethod_ListAndWatch<
                               v1beta1::DevicePlugin::Service> {
 public:
  // How a container gets what it needs: every kubelet knows mounts; CDI needs a kubelet and a
  // runtime that know it. With both it would get everything twice.
  enum class Inject { kMounts, kCdi };

  struct Options {
    Inject inject = Inject::kMounts;
    std::string run_directory;  // of the daemon's socket, on the host
    Injection common;
  };

  // `daemon` outlives it. No GPUs until SetGpus().
  ShareService(Resource resource, Options options, DaemonLink& daemon);

  const Resource& resource() const { return resource_; }
  // Tells kubelet, if that is something new. Any thread.
  void SetGpus(const std::vector<Gpu>& gpus);

  static v1beta1::DevicePluginOptions PluginOptions();

  grpc::Status GetDevicePluginOptions(grpc::ServerContext* context, const v1beta1::Empty* request,
                                      v1beta1::DevicePluginOptions* options) override;
  grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* ListAndWatch(
      grpc::CallbackServerContext* context, const v1beta1::Empty* request) override;
  grpc::Status GetPreferredAllocation(grpc::ServerContext* context,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* response) override;
  grpc::Status Allocate(grpc::ServerContext* context, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override;
  grpc::Status PreStartContainer(grpc::ServerContext* context,
                                 const v1beta1::PreStartContainerRequest* request,
                                 v1beta1::PreStartContainerResponse* response) override;

 private:
  class Stream;

  std::vector<Share> shares() const;

  const Resource resource_;
  const Options options_;
  DaemonLink& daemon_;

  mutable std::mutex mutex_;
  std::vector<Gpu> gpus_;      // guarded by mutex_
  std::set<Stream*> streams_;  // guarded by mutex_
};

}  // namespace detshare::kubernetes
