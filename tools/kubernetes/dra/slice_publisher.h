// Keeps the ResourceSlice of this node as the GPUs are: creates it, updates it, creates it again when
// kubelet has deleted it, and deletes other slices of this driver and node.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/mutex.h"
#include "tools/kubernetes/dra/api_server.h"
#include "tools/kubernetes/dra/object_watch.h"
#include "tools/kubernetes/dra/slices.h"
#include "tools/kubernetes/gpu.h"
#include "tools/kubernetes/notice.h"

namespace detshare::kubernetes {

// It says on stderr what it publishes and what goes wrong, each once.
class SlicePublisher {
 public:
  // Publishes nothing before the first Publish(). `api` outlives it.
  SlicePublisher(const ApiServer& api, SliceOptions options);
  // Slices stay: a driver that is updated comes back. Kubelet deletes them if it does not.
  ~SlicePublisher();
  SlicePublisher(const SlicePublisher&) = delete;
  SlicePublisher& operator=(const SlicePublisher&) = delete;

  // Any thread; returns at once.
  void Publish(const std::vector<Gpu>& gpus, bool reachable);

 private:
  void Run();
  absl::Status Reconcile(const std::vector<Gpu>& gpus, bool reachable);
  absl::Status Create(const std::vector<Gpu>& gpus, bool reachable);
  absl::Status Update(Json slice, const std::vector<Gpu>& gpus, bool reachable);
  // Looks which fields of `sent` the server has dropped.
  absl::Status Note(const Json& sent, const Json& stored);
  // The node as the owner of the slice, so that both are deleted together.
  absl::StatusOr<Json> Owner();

  const ApiServer& api_;
  SliceOptions options_;  // only the publisher's thread changes it
  Notice notice_;

  Mutex mutex_;
  CondVar wake_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool known_ ABSL_GUARDED_BY(mutex_) = false;    // Publish() was called
  bool pending_ ABSL_GUARDED_BY(mutex_) = false;  // something has changed
  bool reachable_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Gpu> gpus_ ABSL_GUARDED_BY(mutex_);
  // What the driver last sent, and the version that the server gave it. Another version is somebody
  // else's.
  Json sent_ ABSL_GUARDED_BY(mutex_);
  std::string stored_version_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
  std::unique_ptr<ObjectWatch> watch_;
};

}  // namespace detshare::kubernetes
