// The primary context of one GPU, which all parts of the backend share: makes it current, converts
// errors, and finds the sessions that may have caused a fault.
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

// A physical stream. Its queue keeps it, and so do address spaces whose work may be on it.
struct StreamState {
  StreamState(CudaContext& context, CUstream stream) : context(context), stream(stream) {}
  ~StreamState();

  CudaContext& context;
  const CUstream stream;
  // The space of the latest work. Changes only while the stream is idle. It tells the thread that
  // handles a fault, and the space's own Busy(), to which space the stream's work belongs.
  std::atomic<CudaAddressSpace*> space{nullptr};
  // `submitted` counts the work that the queue's thread has submitted. `completed` is the value of
  // `submitted` at which Busy() last saw the stream idle. Both are sequentially consistent with the
  // `watched_` of DeferredReclaimer.
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> completed{0};
  // Set while the queue's thread submits work. Tells the thread that waits in IdleWindow (see
  // IdleWindow::holding).
  std::atomic<bool> entering{false};
};

// Any thread may call it.
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

  // Returns OkStatus for CUDA_SUCCESS, else the error with the name of the call. Notes errors that
  // end the context.
  absl::Status Check(CUresult result, const char* call);

  // Returns the error that ended the context, else OkStatus.
  absl::Status health() const;
  // Returns the context's error for a session. The message tells whether the session's own work may
  // be the cause.
  absl::Status FaultOf(const CudaAddressSpace& space) const;
  bool lost() const { return fault_.load(std::memory_order_acquire) != CUDA_SUCCESS; }

  // Streams and spaces whose work may be in flight. They serve to find the cause of a fault.
  void AddStream(const std::shared_ptr<StreamState>& stream);
  void AddSpace(CudaAddressSpace* space);
  void RemoveSpace(CudaAddressSpace* space);
  std::vector<std::shared_ptr<StreamState>> Streams();
  bool AnySpaceWaitsForTheHost();
  // Lets the streams of abandoned spaces pass the waits on memory where they stand. Each call
  // releases one wait of each stream.
  void ReleaseAbandonedWaits();
  // Writes a word of 4 or 8 bytes of device memory without waiting for the sessions' streams.
  // Usually the word has arrived when the call returns.
  void WriteWord(CUdeviceptr address, uint64_t value, int bytes);
  // Returns whether a stream has work in flight or a thread submits some. Asks the driver about
  // each stream that may have work.
  bool Busy();

  IdleWindow idle{*this};
  // The largest local memory per thread that a launched kernel needed. Relaxed: a thread that sees
  // an old value only takes the slow path of a launch.
  std::atomic<uint32_t> local_bytes{0};

 private:
  void OnFault(CUresult result, const char* call);

  // The first error that ended the context. Release: publishes the members below and the suspicion
  // of the spaces to every thread that sees the error.
  std::atomic<CUresult> fault_{CUDA_SUCCESS};
  std::string fault_call_;
  int suspects_ = 0;

  std::mutex mutex_;
  std::vector<std::weak_ptr<StreamState>> streams_;
  std::vector<CudaAddressSpace*> spaces_;

  std::mutex urgent_mutex_;           // guards what follows
  CUstream urgent_stream_ = nullptr;  // made when first needed; ends with the context
};

}  // namespace detshare::cuda
