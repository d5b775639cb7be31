#include "client_shim/work/graph/capture_work.h"

#include <array>
#include <mutex>

#include "client_shim/work/graph/capture.h"
#include "client_shim/work/graph/graph_memory.h"
#include "client_shim/work/graph/make_node.h"
#include "client_shim/work/launch_hints.h"

namespace detshare::shim {

CUresult CaptureLaunch(Stream& stream, CUfunction function, const KernelInstance& instance,
                       const LaunchRequest& launch, const LaunchEvents* events, void** params,
                       const void* buffer, size_t buffer_bytes) {
  KernelNode node =
      MakeKernelNode(ContextOf(stream), instance, launch, params, buffer, buffer_bytes);
  NameKernel(function, &node);
  if ((launch.flags & wire::kLaunchHasPriority) == 0) {
    node.launch.flags |= wire::kLaunchHasPriority;
    node.launch.priority = stream.priority.load(std::memory_order_relaxed);
  }
  if (events != nullptr) node.hints = events->hints;
  {
    const std::lock_guard lock(stream.lock);
    if (stream.hints.given != 0) node.hints = Merge(node.hints, stream.hints);
  }
  CaptureOptions options;
  options.programmatic = (launch.flags & wire::kLaunchProgrammaticSerialization) != 0;
  std::array<CaptureOptions::Record, std::size(LaunchEvents{}.events)> records;
  if (events != nullptr) {
    for (int i = 0; i < events->count; ++i) records[i] = {events->events[i], events->edges[i]};
    options.records = {records.data(), static_cast<size_t>(events->count)};
  }
  return AddToCapture(stream, std::move(node), options);
}

CUresult CaptureCopy(Stream& stream, const PitchedPlace& to, const PitchedPlace& from,
                     uint64_t width, uint64_t height, uint64_t depth) {
  return AddToCapture(stream, MakeCopyNode(ContextOf(stream), to, from, width, height, depth));
}

CUresult CaptureFill(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& fill) {
  FillNode node;
  const CUresult result = MakeCapturedFillNode(fill, ContextOf(stream).handle, &node);
  return result != CUDA_SUCCESS ? result : AddToCapture(stream, std::move(node));
}

CUresult CaptureHostFunction(Stream& stream, CUhostFn function, void* data) {
  return AddToCapture(stream, HostNode{function, data});
}

CUresult CaptureEventRecord(Stream& stream, CUevent handle) {
  EventRecordNode node;
  const CUresult result = MakeNodeEvent(handle, &node.event);
  return result != CUDA_SUCCESS ? result : AddToCapture(stream, node);
}

CUresult CaptureEventWait(Stream& stream, CUevent handle) {
  EventWaitNode node;
  const CUresult result = MakeNodeEvent(handle, &node.event);
  return result != CUDA_SUCCESS ? result : AddToCapture(stream, node);
}

CUresult CaptureAlloc(Stream& stream, uint64_t bytes, CUdeviceptr* address) {
  AllocNode node;
  const auto memory = std::make_shared<GraphMemory>(ContextOf(stream), bytes);
  node.memory = memory;
  node.description.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  node.description.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, stream.device};
  node.description.bytesize = bytes;
  const CUresult added = AddToCapture(stream, std::move(node));
  if (added == CUDA_SUCCESS) *address = memory->address;
  return added;
}

CUresult CaptureFree(Stream& stream, CUdeviceptr address) {
  FreeNode node;
  {
    const std::lock_guard lock(GraphMutex());
    node.memory = FindGraphMemory(address);
  }
  return node.memory == nullptr ? CUDA_ERROR_INVALID_VALUE : AddToCapture(stream, std::move(node));
}

CUresult CaptureMemoryOps(Stream& stream, const CUstreamBatchMemOpParams* operations,
                          uint32_t count, uint32_t flags) {
  MemoryOpsNode node;
  const CUresult result =
      MakeMemoryOpsNode(ContextOf(stream).handle, operations, count, flags, &node);
  return result != CUDA_SUCCESS ? result : AddToCapture(stream, std::move(node));
}

}  // namespace detshare::shim
