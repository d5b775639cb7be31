// The device plugin of one resource: serves kubelet's calls.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "proto/mutex.h"
#include "tools/containers/injection.h"
#include "tools/kubernetes/daemon_link.h"
#include "tools/kubernetes/device_plugin.grpc.pb.h"
#include "tools/kubernetes/shares.h"
#include "tools/kubernetes/snapshot_streams.h"

namespace detshare::kubernetes {

// ListAndWatch is asynchronous: its stream waits for changes without a thread. The other calls run
// on gRPC's threads. They are short or wait for the daemon.
class ShareService final : public v1beta1::DevicePlugin::WithCallbackMethod_ListAndWatch<
                               v1beta1::DevicePlugin::Service> {
 public:
  // How a container gets its mounts. Every kubelet supports kMounts. kCdi needs a kubelet and a
  // runtime that support CDI. With both ways a container would get every mount twice.
  enum class Inject { kMounts, kCdi };

  struct Options {
    Inject inject = Inject::kMounts;
    std::string run_directory;  // the directory of the daemon's socket on the host
    containers::Injection common;
  };

  // `daemon` must outlive the service. There are no GPUs before SetGpus().
  ShareService(Resource resource, Options options, DaemonLink& daemon);

  const Resource& resource() const { return resource_; }
  // Sends the new shares to kubelet if `gpus` have changed. Any thread.
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
  std::vector<Share> shares() const;

  const Resource resource_;
  const Options options_;
  DaemonLink& daemon_;

  mutable Mutex mutex_;
  std::vector<Gpu> gpus_ ABSL_GUARDED_BY(mutex_);
  SnapshotStreams<v1beta1::ListAndWatchResponse> streams_;
};

}  // namespace detshare::kubernetes
