// The primary context of one GPU, as all parts of the backend use it: calls with it current,
// errors, faults.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/backends/cuda/driver_api.h"
#include "server/backends/cuda/idle_window.h"

namespace detshare::cuda {

class CudaAddressSpace;
class CudaContext;

// A physical stream. Lives as long as its queue or an address space whose work may be on it.
struct StreamState {
  StreamState(CudaContext& context, CUstream stream) : context(context), stream(stream) {}
  ~StreamState();

  CudaContext& context;
  const CUstream stream;
  // In whose name the latest work was submitted. Changes only while the stream is idle.
  std::atomic<CudaAddressSpace*> space{nullptr};
  // Work ever submitted (by the queue's thread) and the value of that at which Busy() last
  // saw the stream idle. Sequentially consistent against CudaContext's `watched_`.
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> completed{0};
  // Whether the queue's thread is just submitting (see IdleWindow::holding).
  std::atomic<bool> entering{false};
};

// Any thread.
class CudaContext {
 public:
  CudaContext(const DriverApi& api, CUdevice device, CUcontext context)
      : api(api), device(device), context(context) {}

  const DriverApi& api;
  const CUdevice device;
  const CUcontext context;

  // Makes the context current in this thread. Only this backend sets contexts in the daemon's
  // threads.
  void Enter() const;

  // OkStatus for CUDA_SUCCESS, else the error with the name of the call. Notes errors that end the
  // context.
  absl::Status Check(CUresult result, const char* call);

  // The error that ended the context, else OkStatus.
  absl::Status health() const;
  // What a session is told: says whether its own work may be the cause.
  absl::Status FaultOf(const CudaAddressSpace& space) const;
  bool lost() const { return fault_.load(std::memory_order_acquire) != CUDA_SUCCESS; }

  // Those whose work may be in flight, to find who caused a fault.
  void AddStream(const std::shared_ptr<StreamState>& stream);
  void AddSpace(CudaAddressSpace* space);
  void RemoveSpace(CudaAddressSpace* space);
  std::vector<std::shared_ptr<StreamState>> Streams();
  bool AnySpaceWaitsForTheHost();
  // Lets the streams of abandoned spaces pass what they wait for in memory, one wait of each a
  // call.
  void ReleaseAbandonedWaits();
  // Writes a word of 4 or 8 bytes of device memory past whatever the streams wait for. It has
  // mostly arrived when the call returns.
  void WriteWord(CUdeviceptr address, uint64_t value, int bytes);
  // Whether any stream has work in flight, or somebody is submitting some. Asks every stream that
  // may have.
  bool Busy();

  IdleWindow idle{*this};
  // The most local memory of a thread that a launched kernel needed.
  std::atomic<uint32_t> local_bytes{0};

 private:
  void OnFault(CUresult result, const char* call);

  // The first error that ended the context. Release: publishes the fields below and the spaces'
  // suspicion.
  std::atomic<CUresult> fault_{CUDA_SUCCESS};
  std::string fault_call_;
  int suspects_ = 0;

  std::mutex mutex_;
  std::vector<std::weak_ptr<StreamState>> streams_;
  std::vector<CudaAddressSpace*> spaces_;

  std::mutex urgent_mutex_;           // guards what follows
  CUstream urgent_stream_ = nullptr;  // made when first needed, ends with the context
};

}  // namespace detshare::cuda
