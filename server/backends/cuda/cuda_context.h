// One GPU with its time-slice groups, which all parts of the backend share: converts errors, and
// finds the sessions that may have caused a fault.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/fresh_address.h"
#include "proto/mutex.h"
#include "server/backends/cuda/cuda_group.h"
#include "server/backends/cuda/driver_api.h"
#include "server/backends/cuda/gpu_claim.h"
#include "server/backends/cuda/graph_gate.h"

namespace detshare::cuda {

class CudaAddressSpace;

// Any thread may call it.
class CudaContext {
 public:
  CudaContext(const DriverApi& api, CUdevice device, CUcontext primary)
      : api(api), device(device), ordinary(*this, primary, /*urgent=*/false) {}

  const DriverApi& api;
  const CUdevice device;
  CudaGroup ordinary;  // of the primary context
  // As Device::OpenUrgent(); null if the device cannot preempt. Set before other threads use the object.
  std::function<absl::Status()> open_urgent;
  GpuClaim claim;  // while the groups have slices of the daemon
  // Null if the device cannot preempt. Set before other threads use the object.
  std::unique_ptr<GraphGate> graph_gate;
  // Of a process that shows them to no other; else empty.
  FreshPages slice_words;

  // Null if the device cannot preempt, and while the group is not open. Acquire: a thread that sees the
  // group sees all that was set up for it.
  CudaGroup* urgent() const { return urgent_.load(std::memory_order_acquire); }
  // Opens the group. Null takes it back, before other threads use the object.
  void set_urgent(std::unique_ptr<CudaGroup> group) {
    urgent_.store(group.get(), std::memory_order_release);
    own_urgent_ = std::move(group);
  }
  // The group in which the session's work runs.
  CudaGroup& GroupOf(const AddressSpace& space) {
    return space.urgent() && urgent() != nullptr ? *urgent() : ordinary;
  }
  // Makes the primary context current in this thread.
  void Enter() const { ordinary.Enter(); }

  // Returns OkStatus for CUDA_SUCCESS, else the error with the name of the call. Notes errors that
  // end the context.
  absl::Status Check(CUresult result, const char* call);

  // Calls `change` while no graph with conditional nodes is in flight in any process (GraphGate::Change), if
  // the device has more than one group. Returns what it returns.
  absl::Status ApartFromGraphs(absl::FunctionRef<absl::Status()> change);
  // The same for the graphs of this process (GraphGate::ChangeHere).
  absl::Status ApartFromOwnGraphs(absl::FunctionRef<absl::Status()> change);

  // Lets the GPU read and write pages of host memory, at their own addresses.
  absl::Status RegisterPages(void* pages, size_t bytes);

  // Returns the error that ended the context, else OkStatus.
  absl::Status health() const;
  // Returns the context's error for a session. The message tells whether the session's own work may
  // be the cause.
  absl::Status FaultOf(const CudaAddressSpace& space) const;
  bool lost() const { return fault_.load(std::memory_order_acquire) != CUDA_SUCCESS; }

  // Spaces whose work may be in flight. They serve to find the cause of a fault.
  void AddSpace(CudaAddressSpace* space);
  void RemoveSpace(CudaAddressSpace* space);
  bool AnySpaceWaitsForTheHost();
  // Lets the streams of abandoned spaces pass the waits on memory where they stand. Each call
  // releases one wait of each stream.
  void ReleaseAbandonedWaits();
  // Writes a word of 4 or 8 bytes of device memory without waiting for the sessions' streams.
  // Usually the word has arrived when the call returns.
  void WriteWord(CUdeviceptr address, uint64_t value, int bytes);
  // Returns whether CudaGroup::Busy() holds for a group.
  bool Busy() { return ordinary.Busy() || (urgent() != nullptr && urgent()->Busy()); }

 private:
  std::unique_ptr<CudaGroup> own_urgent_;
  std::atomic<CudaGroup*> urgent_{nullptr};  // as own_urgent_, for urgent()

  void OnFault(CUresult result, const char* call);
  // Gives the text of failed assertions to the sessions that may have caused it.
  void PassAssertions() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The first error that ended the context. Release: publishes the members below and the suspicion
  // of the spaces to every thread that sees the error.
  std::atomic<CUresult> fault_{CUDA_SUCCESS};
  std::string fault_call_;
  int suspects_ = 0;

  Mutex mutex_;
  std::vector<CudaAddressSpace*> spaces_ ABSL_GUARDED_BY(mutex_);

  Mutex urgent_mutex_;
  // Made when first needed; ends with the context.
  CUstream urgent_stream_ ABSL_GUARDED_BY(urgent_mutex_) = nullptr;
};

}  // namespace detshare::cuda
