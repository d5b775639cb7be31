// The default implementations, for devices without graphs.
#include "coroutine_runtime/device.h"

#include "coroutine_runtime/device_graph.h"
#include "coroutine_runtime/status_cuda.h"

namespace detshare {

Marker::~Marker() {
  if (parked_ != nullptr) parked_->marker = nullptr;
}
namespace {

absl::Status NoGraphs() { return CudaError(kCudaErrorNotSupported, "this device has no graphs"); }

}  // namespace

absl::Status Queue::LaunchGraph(AddressSpace&, Graph&, absl::Span<const uint64_t>) {
  return NoGraphs();
}

absl::Status AddressSpace::UseManaged(const ManagedMemory::Range&) {
  return CudaError(kCudaErrorNotSupported, "this device has no managed memory");
}

absl::Status Queue::UploadGraph(AddressSpace&, Graph&) { return absl::OkStatus(); }

absl::StatusOr<std::unique_ptr<Graph>> Device::InstantiateGraph(AddressSpace&, Partition&,
                                                                const GraphDescription&,
                                                                GraphPlace* refused) {
  *refused = {};
  return NoGraphs();
}

absl::StatusOr<uint64_t> Device::CreateGraphCondition(AddressSpace&, uint32_t, bool, uint64_t) {
  return CudaError(kCudaErrorNotSupported, "this device has no conditional nodes");
}

}  // namespace detshare
