// The CUgraph for which the handles of a graph's conditional nodes were made. A handle works in no
// other, and kernels hold its value: so all instantiations of a program's graph with conditional
// nodes are made of this one, one at a time.
//
// The nodes of an instantiation stay until the next one is made, as does its executable, unless the
// deferred reclaimer finds an idle moment for that.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/backends/cuda/deferred_reclaimer.h"
#include "server/backends/cuda/cuda_context.h"

namespace detshare::cuda {

class CudaAddressSpace;

// The session's thread, but for what the deferred reclaimer does.
class ConditionalHome : public std::enable_shared_from_this<ConditionalHome> {
 public:
  // `number`: not 0, and no other home's in the session.
  static absl::StatusOr<std::shared_ptr<ConditionalHome>> Create(CudaContext& context,
                                                                 DeferredReclaimer& reclaimer,
                                                                 uint32_t number);
  // The deferred reclaimer destroys the graph when nothing is in flight.
  ~ConditionalHome();

  // The id of a new handle: the home's number above the handle, which is the same in many graphs
  // (measured with driver 580: they count from 1 in each).
  absl::StatusOr<uint64_t> CreateHandle(uint32_t default_value, bool assign_default);

  // The graph, without nodes, for one instantiation until Leave(). CUDA_ERROR_INVALID_VALUE while
  // there is one. May wait for an idle moment.
  absl::StatusOr<CUgraph> Enter(CudaAddressSpace& space);
  // `nodes`: of the graph itself. `executable` may be null; its launches go on.
  void Leave(std::vector<CUgraphNode> nodes, CUgraphExec executable);

 private:
  ConditionalHome(CudaContext& context, DeferredReclaimer& reclaimer, uint32_t number, CUgraph graph)
      : context_(context), reclaimer_(reclaimer), number_(number), graph_(graph) {}
  absl::Status Clear();
  void DestroyExecutable();

  CudaContext& context_;
  DeferredReclaimer& reclaimer_;
  const uint32_t number_;
  const CUgraph graph_;
  bool occupied_ = false;
  std::vector<CUgraphNode> nodes_;  // of the last instantiation
  std::mutex mutex_;                // guards what follows
  CUgraphExec executable_ = nullptr;
};

// Those of one session.
class ConditionalHomes {
 public:
  // Makes a handle in the home of `sibling`, an id, or in a new one when that is 0; its id.
  // CUDA_ERROR_INVALID_VALUE for a sibling that is none.
  absl::StatusOr<uint64_t> CreateHandle(CudaContext& context, DeferredReclaimer& reclaimer,
                                        uint64_t sibling, uint32_t default_value,
                                        bool assign_default);
  // Null when there is no such id.
  std::shared_ptr<ConditionalHome> Find(uint64_t id) const;

 private:
  uint32_t homes_made_ = 0;
  std::map<uint64_t, std::shared_ptr<ConditionalHome>> homes_;  // by id of each handle
};

}  // namespace detshare::cuda
