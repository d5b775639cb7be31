// Keeps the CUgraph for which the handles of a graph's conditional nodes were made. A handle works
// in no other CUgraph, and kernels hold the handle's value. So the backend makes all instantiations
// of a program's graph with conditional nodes in this CUgraph, one at a time.
//
// The nodes and the executable of an instantiation stay until the next instantiation is made. The
// deferred reclaimer destroys the executable earlier if it finds an idle moment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/deferred_reclaimer.h"

namespace detshare::cuda {

class CudaAddressSpace;

// One home. The session's thread calls it; the deferred reclaimer's thread destroys the executable.
class ConditionalHome : public std::enable_shared_from_this<ConditionalHome> {
 public:
  // `number` is not 0, and no other home of the session has it.
  static absl::StatusOr<std::shared_ptr<ConditionalHome>> Create(CudaGroup& group,
                                                                 DeferredReclaimer& reclaimer,
                                                                 uint32_t number);
  // Leaves the graph to the deferred reclaimer, which destroys it when nothing is in flight.
  ~ConditionalHome();

  // Makes a handle and returns its id: the home's number above the driver's handle. The driver's
  // handle alone is not unique (measured with driver 580: handles count from 1 in each graph).
  absl::StatusOr<uint64_t> CreateHandle(uint32_t default_value, bool assign_default);

  // Returns the graph, without nodes, for one instantiation until Leave(). Returns
  // CUDA_ERROR_INVALID_VALUE while another instantiation uses it. May wait for an idle moment.
  absl::StatusOr<CUgraph> Enter(CudaAddressSpace& space);
  // Ends an instantiation. `nodes` are the nodes of the graph itself. `executable` may be null; its
  // launches go on.
  void Leave(std::vector<CUgraphNode> nodes, CUgraphExec executable);

 private:
  ConditionalHome(CudaGroup& group, DeferredReclaimer& reclaimer, uint32_t number, CUgraph graph)
      : group_(group), reclaimer_(reclaimer), number_(number), graph_(graph) {}
  absl::Status Clear();
  void DestroyExecutable();

  CudaGroup& group_;
  DeferredReclaimer& reclaimer_;
  const uint32_t number_;
  const CUgraph graph_;
  bool occupied_ = false;
  std::vector<CUgraphNode> nodes_;  // nodes of the last instantiation
  Mutex mutex_;
  CUgraphExec executable_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// The homes of one session.
class ConditionalHomes {
 public:
  // Makes a handle and returns its id. The handle belongs to the home of `sibling`, the id of
  // another handle, or to a new home if `sibling` is 0. Returns CUDA_ERROR_INVALID_VALUE if no
  // handle has the id `sibling`.
  absl::StatusOr<uint64_t> CreateHandle(CudaGroup& group, DeferredReclaimer& reclaimer,
                                        uint64_t sibling, uint32_t default_value,
                                        bool assign_default);
  // The id names no handle any more. The home lives while other handles or graphs use it.
  void EndHandle(uint64_t id) { homes_.erase(id); }
  // Returns the home of a handle; null if there is no such id.
  std::shared_ptr<ConditionalHome> Find(uint64_t id) const;

 private:
  uint32_t homes_made_ = 0;
  std::map<uint64_t, std::shared_ptr<ConditionalHome>> homes_;  // by the id of each handle
};

}  // namespace detshare::cuda
