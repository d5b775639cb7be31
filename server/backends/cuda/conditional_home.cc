#include "server/backends/cuda/conditional_home.h"

#include <utility>

#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/backends/cuda/cuda_address_space.h"

namespace detshare::cuda {

absl::StatusOr<std::shared_ptr<ConditionalHome>> ConditionalHome::Create(
    CudaGroup& group, DeferredReclaimer& reclaimer, uint32_t number) {
  group.Enter();
  CUgraph graph = nullptr;
  DETSHARE_RETURN_IF_ERROR(
      group.gpu.Check(group.gpu.api.cuGraphCreate(&graph, 0), "cuGraphCreate"));
  group.graph_order.AddConditional();
  return std::shared_ptr<ConditionalHome>(new ConditionalHome(group, reclaimer, number, graph));
}

ConditionalHome::~ConditionalHome() {
  reclaimer_.Later(DeferredReclaimer::Of(group_),
                   [&group = group_, graph = graph_, executable = executable_] {
                     group.Enter();
                     if (executable != nullptr) group.gpu.api.cuGraphExecDestroy(executable);
                     group.gpu.api.cuGraphDestroy(graph);
                     group.graph_order.RemoveConditional();
                   });
}

absl::StatusOr<uint64_t> ConditionalHome::CreateHandle(uint32_t default_value,
                                                       bool assign_default) {
  group_.Enter();
  CUgraphConditionalHandle handle = 0;
  DETSHARE_RETURN_IF_ERROR(group_.gpu.Check(group_.gpu.api.cuGraphConditionalHandleCreate(
                                                &handle, graph_, group_.context, default_value,
                                                assign_default ? CU_GRAPH_COND_ASSIGN_DEFAULT : 0),
                                            "cuGraphConditionalHandleCreate"));
  if (handle > UINT32_MAX) return absl::InternalError("a conditional handle has more than 32 bits");
  return uint64_t{number_} << 32 | handle;
}

absl::StatusOr<CUgraph> ConditionalHome::Enter(CudaAddressSpace& space) {
  if (occupied_) {
    return CudaError(kCudaErrorInvalidValue,
                     "a graph with conditional nodes is instantiated once at a time");
  }
  if (!nodes_.empty()) {
    absl::Status status = group_.idle.Run(space, [this] { return Clear(); });
    if (!status.ok()) return status;
  }
  occupied_ = true;
  return graph_;
}

void ConditionalHome::Leave(std::vector<CUgraphNode> nodes, CUgraphExec executable) {
  occupied_ = false;
  nodes_ = std::move(nodes);
  if (executable == nullptr) return;
  {
    const MutexLock lock(&mutex_);
    executable_ = executable;
  }
  reclaimer_.Later(DeferredReclaimer::Of(group_), [weak = weak_from_this()] {
    if (const std::shared_ptr<ConditionalHome> self = weak.lock()) self->DestroyExecutable();
  });
}

absl::Status ConditionalHome::Clear() {
  DestroyExecutable();
  // Destroys the last node first, so that the driver has no edges to move.
  while (!nodes_.empty()) {
    DETSHARE_RETURN_IF_ERROR(
        group_.gpu.Check(group_.gpu.api.cuGraphDestroyNode(nodes_.back()), "cuGraphDestroyNode"));
    nodes_.pop_back();
  }
  return absl::OkStatus();
}

void ConditionalHome::DestroyExecutable() {
  const MutexLock lock(&mutex_);
  if (executable_ == nullptr) return;
  group_.Enter();
  group_.gpu.api.cuGraphExecDestroy(std::exchange(executable_, nullptr));
}

absl::StatusOr<uint64_t> ConditionalHomes::CreateHandle(CudaGroup& group,
                                                        DeferredReclaimer& reclaimer,
                                                        uint64_t sibling, uint32_t default_value,
                                                        bool assign_default) {
  std::shared_ptr<ConditionalHome> home = Find(sibling);
  if (home == nullptr) {
    if (sibling != 0)
      return CudaError(kCudaErrorInvalidValue, "the conditional handle does not exist");
    DETSHARE_ASSIGN_OR_RETURN(home, ConditionalHome::Create(group, reclaimer, homes_made_ + 1));
    ++homes_made_;
  }
  const absl::StatusOr<uint64_t> id = home->CreateHandle(default_value, assign_default);
  if (id.ok()) homes_[*id] = std::move(home);
  return id;
}

std::shared_ptr<ConditionalHome> ConditionalHomes::Find(uint64_t id) const {
  const auto found = homes_.find(id);
  return found == homes_.end() ? nullptr : found->second;
}

}  // namespace detshare::cuda
