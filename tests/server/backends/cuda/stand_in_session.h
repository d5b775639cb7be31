// A session of the CUDA backend on a driver without a GPU: its streams do what the test says. The
// queues, the groups and the deferred reclaimer are those of the backend.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "server/backends/cuda/cuda_address_space.h"
#include "server/backends/cuda/cuda_context.h"
#include "server/backends/cuda/cuda_queue.h"
#include "server/backends/cuda/deferred_reclaimer.h"
#include "server/backends/cuda/driver_api.h"
#include "server/backends/cuda/host_registry.h"

namespace detshare::cuda {

inline constexpr DeviceAddress kBase = 0x7000'0000'0000;
inline constexpr uint64_t kSize = 1 << 20;

// What a CUstream of the driver below points to.
struct StandInStream {
  std::atomic<int> in_flight{0};  // operations
  std::atomic<CUresult> error{CUDA_SUCCESS};
  std::atomic<int> queries{0};                // whether it is idle
  std::atomic<int> event_queries{0};          // of events that were recorded in it last
  std::set<const StandInStream*> waited_for;  // by events
};

// What a CUevent points to.
struct StreamPoint {
  StandInStream* stream = nullptr;  // where it was recorded last
};

inline StandInStream& StreamOf(CUstream stream) {
  return *reinterpret_cast<StandInStream*>(stream);
}

inline StreamPoint& PointOf(CUevent event) { return *reinterpret_cast<StreamPoint*>(event); }

// How many operations all streams of the test have received.
inline std::atomic<uint64_t> g_submitted{0};

inline DriverApi StandInDriver() {
  DriverApi api;
  api.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  api.cuGetErrorName = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_OF_THE_TEST";
    return CUDA_SUCCESS;
  };
  api.cuMemAddressReserve = [](CUdeviceptr* address, size_t, size_t, CUdeviceptr wanted,
                               unsigned long long) {
    *address = wanted;
    return CUDA_SUCCESS;
  };
  api.cuMemAddressFree = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  api.cuStreamDestroy = [](CUstream) { return CUDA_SUCCESS; };
  api.cuStreamQuery = [](CUstream stream) {
    ++StreamOf(stream).queries;
    if (const CUresult error = StreamOf(stream).error; error != CUDA_SUCCESS) return error;
    return StreamOf(stream).in_flight != 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  api.cuStreamSynchronize = [](CUstream stream) {
    while (StreamOf(stream).in_flight != 0) std::this_thread::yield();
    return CUDA_SUCCESS;
  };
  // An event is its stream: it is reached when the stream has nothing in flight.
  api.cuEventCreate = [](CUevent* event, unsigned) {
    static std::deque<StreamPoint> points;
    *event = reinterpret_cast<CUevent>(&points.emplace_back());
    return CUDA_SUCCESS;
  };
  api.cuEventRecord = [](CUevent event, CUstream stream) {
    PointOf(event).stream = &StreamOf(stream);
    return CUDA_SUCCESS;
  };
  api.cuEventQuery = [](CUevent event) {
    ++PointOf(event).stream->event_queries;
    return PointOf(event).stream->in_flight != 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  api.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    StreamOf(stream).waited_for.insert(PointOf(event).stream);
    return CUDA_SUCCESS;
  };
  api.cuMemsetD8Async = [](CUdeviceptr, unsigned char, size_t, CUstream stream) {
    ++StreamOf(stream).in_flight;
    ++g_submitted;
    return CUDA_SUCCESS;
  };
  api.cuStreamWaitValue64 = [](CUstream, CUdeviceptr, cuuint64_t, unsigned) {
    return CUDA_SUCCESS;
  };
  return api;
}

// A session with `kStreams` streams, whose work ends when the test says so.
struct StandInSession {
  static constexpr int kStreams = 3;

  std::array<StandInStream, kStreams> streams;
  const DriverApi api;
  CudaContext context{api, 0, nullptr};
  HostRegistry registry;
  DeferredReclaimer reclaimer{context};
  std::unique_ptr<CudaAddressSpace> space;
  std::vector<std::unique_ptr<CudaQueue>> queues;
  IdleWindow& idle = context.ordinary.idle;

  explicit StandInSession(const DriverApi& driver = StandInDriver()) : api(driver) {
    space = *CudaAddressSpace::Create({context, reclaimer, registry, 4096}, kBase, kSize);
    for (StandInStream& stream : streams) {
      auto state =
          std::make_shared<StreamState>(context.ordinary, reinterpret_cast<CUstream>(&stream));
      context.ordinary.AddStream(state);
      queues.push_back(std::make_unique<CudaQueue>(reclaimer, std::move(state)));
    }
  }
  ~StandInSession() {
    for (StandInStream& stream : streams) stream.in_flight = 0;
    space.reset();
    queues.clear();
  }

  absl::Status Submit(int stream) { return queues[stream]->Fill(*space, {kBase, 0, 16}); }
  bool Busy() const {
    return std::any_of(streams.begin(), streams.end(),
                       [](const StandInStream& stream) { return stream.in_flight != 0; });
  }
};

}  // namespace detshare::cuda
